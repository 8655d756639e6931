"""The configuration: its file, the environment, who is let in, where it listens, provider keys."""

import errno
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from stepwell.app.config import FILE, NOT_SETTINGS, PREFIX, AuthMode, Config, load_config
from stepwell.app.diagnosis.findings import Finding, broken, note, ok
from stepwell.errors import ConfigurationError
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.secrets import hide

_NOWHERE = Path("/nonexistent")
"""A folder without a configuration file."""


def file_finding(folder: Path, file: Path | None) -> Finding:
    """The configuration file, if there is one."""
    path = file or folder / FILE
    if file is None and not path.exists():
        return note("configuration file", f"no {FILE} here; the defaults hold")
    try:
        load_config(folder=folder, file=path, environment={})
    except ConfigurationError as error:
        return broken("configuration file", str(error), f"fix {path}")
    return ok("configuration file", str(path))


def environment_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Every variable that is meant for Stepwell: known, and with a value that it takes. Values
    are not shown; some are secrets."""
    names = [
        name
        for name in sorted(environment)
        if name.startswith(PREFIX) and not name.startswith(NOT_SETTINGS)
    ]
    for name in names:
        try:
            load_config(folder=_NOWHERE, environment={name: environment[name]})
        except ConfigurationError as error:
            why = _without(error, environment[name])
            text = why if name in why else f"{name}: {why}"
            yield broken("environment", text, f"unset {name}, or fix it")
    if not names:
        yield ok("environment", f"no {PREFIX}* variable is set")
    else:
        yield note("environment", f"set: {', '.join(names)}; they win over the file")


def _without(error: ConfigurationError, value: str) -> str:
    text = str(error).removeprefix("the configuration: ").partition("; known settings:")[0]
    return hide(text, [value], shortest=3)


def auth_finding(config: Config) -> Finding:
    """Who is let in, and whether that goes with where it listens."""
    # Here: it needs the packages of the server, and the other checks do not.
    from stepwell.server.auth import DevAuthenticator, refuse_open_bind

    mode, host = config.auth.mode, config.host
    missing = [it for it in ("jwks_url", "issuer", "audience") if not getattr(config.auth, it)]
    if mode is AuthMode.JWT and missing:
        names = ", ".join(missing)
        return broken("auth", f"mode is jwt without {names}", f"write {names} into [auth]")
    if mode is not AuthMode.DEV:
        return ok("auth", f"{mode}, on {host}")
    try:
        refuse_open_bind(host, DevAuthenticator())
    except (ConfigurationError, OSError) as error:
        return broken("auth", str(error), 'set mode = "keys" in [auth], or host = "127.0.0.1"')
    return ok("auth", f"dev: everybody on this machine, on {host}")


def port_finding(host: str, port: int) -> Finding:
    """Whether the server could listen there now."""
    if port == 0:
        return ok("port", "a free one is taken")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fix = "end what listens there, or take another one with --port"
            return note("port", f"{port} of {host} is in use, perhaps by a server of yours", fix)
        return broken("port", f"{port} of {host}: {error.strerror or error}", "set host and port")
    return ok("port", f"{port} of {host} is free")


def key_finding(environment: Mapping[str, str], model: str | None) -> Finding:
    """Which providers have a key; never the keys themselves."""
    variables = {p.name: p.key_env for p in KNOWN_PROVIDERS.values() if p.key_env is not None}
    has_key = [name for name, it in variables.items() if environment.get(it, "").strip()]
    provider = (model or "").partition(":")[0]
    if provider in variables and provider not in has_key:
        fix = f"export {variables[provider]}=..."
        return broken("provider keys", f"model is {model!r}, and {provider} has no key", fix)
    if not has_key:
        return note(
            "provider keys",
            "none is set; agents whose words are scripted and local models need none",
            "export ANTHROPIC_API_KEY=..., OPENAI_API_KEY=..., or that of another provider",
        )
    return ok("provider keys", f"set for {', '.join(has_key)}")
