"""Derives provider and model from model names, for requests and responses."""

from stepwell.capabilities.telemetry import names
from stepwell.models import ModelSettings

FALLBACK = "fallback("
"""Prefix of a fallback's name, before the names of its models."""
VERSION_SEPARATORS = ("-", ":", "@")
"""What providers put between the requested name and the version that answered."""


def provider_and_model(name: str, settings: ModelSettings) -> tuple[str, str]:
    """Return the provider's name in the conventions, and the model's name at the provider.

    >>> provider_and_model("gemini:gemini-3-pro", ModelSettings())
    ('gcp.gemini', 'gemini-3-pro')
    """
    provider, model = _split(name)
    return provider, settings.model or model


def provider_and_model_of_response(requested: str, answered: str) -> tuple[str, str]:
    """Return which of the requested models answered, as provider and the provider's model name.

    Models that wrap others report a full name, with the provider; a provider's own name for its
    model is kept. If the name matches models of two providers, the provider is unknown.

    >>> provider_and_model_of_response("fallback(openai:gpt-5, anthropic:opus)", "opus-20260101")
    ('anthropic', 'opus-20260101')
    """
    members = _members(requested)
    if answered in members:
        return _split(answered)
    providers = {_split(member)[0] for member in _best_matches(members, answered) or members}
    return (providers.pop() if len(providers) == 1 else names.UNKNOWN_PROVIDER), answered


def _split(name: str) -> tuple[str, str]:
    provider, colon, model = name.partition(":")
    if not colon or not provider.replace("-", "").replace("_", "").isalnum():
        return names.UNKNOWN_PROVIDER, name
    return names.PROVIDERS.get(provider, provider), model


def _members(name: str) -> tuple[str, ...]:
    """Return the models of a fallback, also of a nested one; else the model itself."""
    if not name.startswith(FALLBACK):
        return (name,)
    return tuple(it.rstrip(")") for it in name.replace(FALLBACK, "").split(", "))


def _best_matches(members: tuple[str, ...], answered: str) -> list[str]:
    """Return the models that match the provider's name best."""
    lengths = {member: _match_length(_split(member)[1], answered) for member in members}
    best = max(lengths.values())
    return [member for member, length in lengths.items() if length == best > 0]


def _match_length(model: str, answered: str) -> int:
    is_version = answered.startswith(tuple(f"{model}{sign}" for sign in VERSION_SEPARATORS))
    return len(model) if model == answered or is_version else 0
