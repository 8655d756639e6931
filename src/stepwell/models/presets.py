"""Names for configured models: ``provider:model``, or your own presets from code or a file.

A preset's model is created when an agent that uses it is built.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from stepwell.errors import ConfigurationError
from stepwell.models.model import Model

if TYPE_CHECKING:
    from stepwell.models.provider import Provider

Preset = Callable[[], Model] | str


class ModelPresets:
    """An immutable table of names and the models they stand for.

    >>> presets = ModelPresets({"local": "ollama:qwen3"})
    >>> presets.names, presets.model("local").name, presets.model("vllm:llama").name
    (('local',), 'ollama:qwen3', 'vllm:llama')
    """

    def __init__(
        self,
        presets: Mapping[str, Preset] | None = None,
        *,
        providers: "Mapping[str, Provider] | None" = None,
    ) -> None:
        self._presets = dict(presets or {})
        self._providers = dict(providers or {})

    @classmethod
    def from_toml(cls, path: Path | str) -> "ModelPresets":
        """Load presets and providers from a file; see docs/howto/models.md for its format."""
        from stepwell.models.presets_file import read_presets

        presets, providers = read_presets(Path(path))
        return cls(presets, providers=providers)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the presets, sorted."""
        return tuple(sorted(self._presets))

    @property
    def providers(self) -> "Mapping[str, Provider]":
        """All providers by name. Your own replace built-in ones."""
        from stepwell.models.providers import KNOWN_PROVIDERS

        return {**KNOWN_PROVIDERS, **self._providers}

    def with_preset(self, name: str, preset: Preset) -> "ModelPresets":
        """Add a preset: a function that creates the model, or another name."""
        return ModelPresets({**self._presets, name: preset}, providers=self._providers)

    def with_provider(self, provider: "Provider") -> "ModelPresets":
        """Add a provider, for names such as ``provider:model``."""
        return ModelPresets(self._presets, providers={**self._providers, provider.name: provider})

    def model(self, name: str) -> Model:
        """Create the model of a name: a preset, ``provider:model``, or a provider's default."""
        return self._model(name, ())

    def _model(self, name: str, asked: tuple[str, ...]) -> Model:
        if name in asked:
            raise ConfigurationError(f"the presets {' -> '.join((*asked, name))} form a cycle")
        preset = self._presets.get(name)
        if isinstance(preset, str):
            return self._model(preset, (*asked, name))
        if preset is not None:
            return preset()
        provider_name, _, model = name.partition(":")
        providers = self.providers
        provider = providers.get(provider_name)
        if provider is None:
            raise ConfigurationError(self._unknown(name, providers))
        return provider.model(model or None)

    def _unknown(self, name: str, providers: "Mapping[str, Provider]") -> str:
        wanted = name.partition(":")[0]
        close = get_close_matches(wanted, (*self._presets, *providers), n=1)
        return (
            f"Unknown model preset {name!r}. Known presets: {', '.join(self.names) or '(none)'}. "
            + (f"Did you mean {close[0]!r}? " if close else "")
            + f"Write provider:model with one of the providers {', '.join(sorted(providers))}; or "
            "add the name with with_model_presets(ModelPresets().with_preset(name, factory)); or "
            "give the agent a Model object."
        )
