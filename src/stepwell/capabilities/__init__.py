"""Features for agents, each one object with one ``configure`` method.

No capability imports another.
"""
