"""Names for configured models. A preset is built when an agent that uses it is built."""

from collections.abc import Callable, Mapping

from stepwell.errors import ConfigurationError
from stepwell.models.model import Model


class ModelPresets:
    """An immutable table from a name to the model it stands for.

    >>> ModelPresets().names
    ()
    """

    def __init__(self, factories: Mapping[str, Callable[[], Model]] | None = None) -> None:
        self._factories = dict(factories or {})

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._factories))

    def with_preset(self, name: str, factory: Callable[[], Model]) -> "ModelPresets":
        """A table that also knows this preset."""
        return ModelPresets({**self._factories, name: factory})

    def model(self, name: str) -> Model:
        """The model behind a name."""
        factory = self._factories.get(name)
        if factory is None:
            raise ConfigurationError(
                f"no model preset is called {name!r}; known: {', '.join(self.names) or '(none)'}. "
                "Add it with with_model_presets(ModelPresets().with_preset(name, factory)), or "
                "give the agent a Model object."
            )
        return factory()
