"""Recovery: reading again, exactly, what left the window.

Source: architecture, "History navigation" and "Exact output paging"; design, section 7.
"""
