"""The routes, one file per thing they are about. They only translate: body, service, view.

All of the API is under ``/agent``; ``/broadcasting/auth``, ``/health``, ``/ready``, ``/metrics``
and ``/openapi.json`` stand where their clients look for them.
"""
