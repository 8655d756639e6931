"""Protects what this process executes and imports from tools and commands."""
