"""Admission: what a user sends becomes rows, and waits for a worker."""
