"""Features that an agent can be given, each one object with one ``configure`` method.

Each lives on its own: no capability imports another.
"""
