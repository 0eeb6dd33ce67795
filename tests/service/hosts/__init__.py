"""Hosts: the same conversation in each host's own form, and what each provider takes."""
