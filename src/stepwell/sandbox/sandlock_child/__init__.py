"""The program ``SandlockSandbox`` starts to confine a command. Never imported by the host.

It starts for each command, so it imports little, and nothing of stepwell outside this folder.
"""
