"""Provider and model from the names that models have: who is asked, and who answered."""

from stepwell.capabilities.telemetry import names
from stepwell.models import ModelSettings

FALLBACK = "fallback("
"""How the name of a fallback begins, before those of its models."""
DATES = ("-", ":", "@")
"""What a provider puts between the name that was asked for and the version that answered."""


def provider_and_model(name: str, settings: ModelSettings) -> tuple[str, str]:
    """The provider as the conventions call it, and the model as the provider does.

    >>> provider_and_model("gemini:gemini-3-pro", ModelSettings())
    ('gcp.gemini', 'gemini-3-pro')
    """
    provider, model = _split(name)
    return provider, settings.model or model


def provider_and_model_of_answer(asked: str, answered: str) -> tuple[str, str]:
    """Who answered, of the models that were asked, and the model as the provider calls it.

    Models that wrap others fill in a whole name, with the provider; a provider's own name for its
    model is left as it is. Where it fits models of two providers, neither is told.

    >>> provider_and_model_of_answer("fallback(openai:gpt-5, anthropic:opus)", "opus-20260101")
    ('anthropic', 'opus-20260101')
    """
    members = _members(asked)
    if answered in members:
        return _split(answered)
    providers = {_split(member)[0] for member in _alike(members, answered) or members}
    return (providers.pop() if len(providers) == 1 else names.UNKNOWN_PROVIDER), answered


def _split(name: str) -> tuple[str, str]:
    provider, colon, model = name.partition(":")
    if not colon or not provider.replace("-", "").replace("_", "").isalnum():
        return names.UNKNOWN_PROVIDER, name
    return names.PROVIDERS.get(provider, provider), model


def _members(name: str) -> tuple[str, ...]:
    """The models of a fallback, also of one inside another; else the model itself."""
    if not name.startswith(FALLBACK):
        return (name,)
    return tuple(it.rstrip(")") for it in name.replace(FALLBACK, "").split(", "))


def _alike(members: tuple[str, ...], answered: str) -> list[str]:
    """Those that the provider's name for its model fits best."""
    fits = {member: _fit(_split(member)[1], answered) for member in members}
    best = max(fits.values())
    return [member for member, fit in fits.items() if fit == best > 0]


def _fit(model: str, answered: str) -> int:
    is_version = answered.startswith(tuple(f"{model}{sign}" for sign in DATES))
    return len(model) if model == answered or is_version else 0
