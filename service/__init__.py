"""The service: everything that touches the world."""
