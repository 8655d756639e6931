"""Sessions in a file."""
