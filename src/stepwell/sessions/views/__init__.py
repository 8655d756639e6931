"""Reads stored executions for people and programs. Never writes."""
