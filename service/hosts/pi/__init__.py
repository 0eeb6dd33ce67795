"""Context paging inside Pi: the extension, its installer, and a doctor for it."""
