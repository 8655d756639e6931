"""The HTTP API, the live channels and who may use them."""
