"""What is fuzzed: a module each, with what has to hold for any input, and how inputs are changed."""
