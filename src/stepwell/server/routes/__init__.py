"""The routes, one file per resource. They only translate: body, service, view.

All of the API is under ``/agent``; ``/broadcasting/auth``, ``/health``, ``/ready``, ``/metrics``
and ``/openapi.json`` are where their clients expect them.
"""
