"""What a provider call costs as the session grows: the parts of ``calls.py``."""
