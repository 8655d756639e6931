"""The program that ``SandlockSandbox`` starts to confine a command. Never imported by the host.

It runs once per command, so it imports little, and nothing of stepwell outside this folder.
"""
