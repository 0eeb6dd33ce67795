"""The HTTP service (extra ``server``): host events in, answers out, the log to read, and pages to look at."""
