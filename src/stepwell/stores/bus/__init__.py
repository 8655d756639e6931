"""The buses: in one process, over PostgreSQL, over Redis. See ``sessions.ports.Bus``."""
