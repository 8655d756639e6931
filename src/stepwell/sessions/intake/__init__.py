"""Admission: stores what a user sends, and queues an execution for it."""
