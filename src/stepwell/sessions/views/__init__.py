"""Stored executions as people and programs read them. Never writes."""
