"""Measurements. Every bench compares in one run on one machine and prints ratios.

``python -m bench <name> [--json]``; with ``--json`` the last line of stdout is one JSON object.
"""
