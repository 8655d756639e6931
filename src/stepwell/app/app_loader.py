"""Loads the application that a command names as ``module:name``."""

import importlib
import sys
import sysconfig
import traceback
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
    """Load the application that the configuration names, or the built-in one.

    An ``AgentApp`` keeps its own settings and takes the rest from the configuration.
    """
    if config.app is None:
        return _app({NAME: default_agent(config.model)}, config)
    found = _find(config.app)
    if isinstance(found, AgentApp):
        return found.use_config(config)
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
    return AgentApp(agents).use_config(config)


def _is_definition(found: object) -> bool:
    return not isinstance(found, type) and callable(getattr(found, "descriptor", None))


def _servable(module: ModuleType) -> str:
    """Describe what a module has that could be served."""
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


def _find(target: str) -> object:
    module_name, _, name = target.partition(":")
    if module_name.endswith(".py"):
        right = module_name.removesuffix(".py").replace("/", ".").strip(".")
        raise ConfigurationError(
            f"{target!r} names a file; name the module: write {right}:{name or 'name'}"
        )
    if not module_name or not name:
        raise ConfigurationError(f"{target!r} does not name an application; write module:name")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name, here)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{module_name} has no {name!r}; {_servable(module)}")
        found = getattr(found, part)
    return found


def _import(module_name: str, here: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ConfigurationError:  # its message is complete
        raise
    except SystemExit as error:  # a script that runs when it is imported
        raise ConfigurationError(_fault(module_name, error)) from None
    except Exception as error:  # noqa: BLE001 - foreign code: all it raises is summary as text
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and missing in (module_name, module_name.partition(".")[0]):
            raise ConfigurationError(
                f"there is no module {module_name!r} in {here} or among the installed packages"
            ) from None
        raise ConfigurationError(_fault(module_name, error)) from None


def _fault(module_name: str, error: Exception | SystemExit) -> str:
    """Describe what an import raised, and where in the user's code."""
    summary = traceback.TracebackException.from_exception(error)
    *place, last = [line.rstrip("\n") for line in summary.format_exception_only()]
    foreign = (str(Path(__file__).parents[1]), *_INSTALLED)
    frames = [frame for frame in summary.stack if not frame.filename.startswith(_IMPORTING)]
    own = [frame for frame in frames if not frame.filename.startswith(foreign)]
    # An installed package has no frame in the user's folder: show all but the import system.
    lines = "".join(traceback.format_list(own or frames[1:])).splitlines()
    if isinstance(error, SystemExit):
        last = f"it ended the program ({last})"
    return "\n".join([f"{module_name} can't be imported: {last}", *lines, *place])


_IMPORTING = ("<frozen importlib", str(Path(importlib.__file__).parent))
_INSTALLED = tuple(
    sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
