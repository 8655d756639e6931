"""The composition root: puts store, worker and server together; alone reads the environment."""
