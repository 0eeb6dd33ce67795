"""The pure core of context paging: no I/O, no clock, no randomness, no logging, no SQL."""
