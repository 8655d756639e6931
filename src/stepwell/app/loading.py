"""Finds the application that a command names: ``module:name``."""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from stepwell.agent import Agent
from stepwell.app.agent_app import AgentApp
from stepwell.app.config import Config
from stepwell.app.default_agent import NAME, default_agent
from stepwell.errors import ConfigurationError


def load_app(config: Config) -> AgentApp:
    """The application that the configuration names, or the built-in one.

    An ``AgentApp`` keeps what it was made with, and takes the rest from the configuration.
    """
    if config.app is None:
        return _app({NAME: default_agent(config.model)}, config)
    found = _found(config.app)
    if isinstance(found, AgentApp):
        return found.configured(config)
    if isinstance(found, Agent):
        return _app({config.app.rpartition(":")[2]: found}, config)
    if isinstance(found, Mapping | list | tuple):
        return _app(cast("Any", found), config)
    if _is_definition(found):
        return _app([cast("Any", found)], config)
    raise ConfigurationError(
        f"{config.app} is a {type(found).__name__}; name an AgentApp, an Agent, agents by name "
        'such as {"helper": agent}, or a list of agent definitions'
    )


def _app(agents: Any, config: Config) -> AgentApp:
    return AgentApp(agents).configured(config)


def _is_definition(found: object) -> bool:
    return not isinstance(found, type) and callable(getattr(found, "descriptor", None))


def _servable(module: ModuleType) -> str:
    """In words what of a module could be served."""
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (isinstance(value, AgentApp | Agent) or _is_definition(value) or _is_agents(value))
    ]
    if not names:
        return "nothing in it is an AgentApp, an Agent, or agents by name"
    return f"it could serve {', '.join(f'{module.__name__}:{name}' for name in names)}"


def _is_agents(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    agents = cast("Mapping[object, object]", value)
    return bool(agents) and all(isinstance(each, Agent) for each in agents.values())


def _found(target: str) -> object:
    module_name, _, name = target.partition(":")
    if module_name.endswith(".py"):
        right = module_name.removesuffix(".py").replace("/", ".").strip(".")
        raise ConfigurationError(
            f"{target!r} names a file; name the module: write {right}:{name or 'name'}"
        )
    if not module_name or not name:
        raise ConfigurationError(f"{target!r} names no application; write module:name")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name not in (module_name, module_name.partition(".")[0]):
            raise
        raise ConfigurationError(
            f"there is no module {module_name!r} in {here} or among the installed packages"
        ) from None
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{module_name} has no {name!r}; {_servable(module)}")
        found = getattr(found, part)
    return found
