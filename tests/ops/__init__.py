"""Benchmarks: what they compute is right."""
