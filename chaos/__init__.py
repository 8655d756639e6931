"""Workers that die, freeze and lose their database while executions run, and a checker that
recomputes from the outside what must have come of it. See ``docs/howto/chaos.md``.
"""
