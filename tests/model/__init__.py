"""A slow, obvious model of context paging, written from the specification and the design.

It keeps no more than what the specification calls state: the host's entries, the leaf, the settings, the cut,
the anchor of the calibration, the latest input, the warnings given, and the invalidating entries seen.
Everything else is made anew from the list of entries in every call. It imports nothing of the project.
"""
