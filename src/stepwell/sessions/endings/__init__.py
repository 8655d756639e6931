"""How executions end. Every end goes through ``close.close_execution``: one that a run decides
comes from its attempt, all others (cancelled, set aside, broken) through ``outside.end_execution``.
"""
