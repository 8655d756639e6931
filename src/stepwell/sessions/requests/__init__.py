"""Requests of users: cancel, answer, resume, fork, rename, close."""
