"""All checks, one after the other; a fault in one keeps none of the others from being made."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from stepwell.app.config import Config, load_config
from stepwell.app.diagnosis.finding import Finding, Level, broken, note, ok
from stepwell.app.diagnosis.packages import lacking, package_findings
from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError


async def diagnosis(
    *,
    folder: Path,
    file: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Finding]:
    """What is well and what is not, as it is found."""
    variables = os.environ if environment is None else environment
    clock = clock or SystemClock()
    for finding in package_findings():
        yield finding
    # Only now: where a package that these need is missing, that was told.
    from stepwell.app.diagnosis.machine import (
        clock_finding,
        disk_finding,
        page_finding,
        sandbox_findings,
    )
    from stepwell.app.diagnosis.settings import environment_findings, file_finding

    async for finding in sandbox_findings():
        yield finding
    written = (file_finding(folder, file), *environment_findings(variables))
    for finding in written:
        yield finding
    try:
        config = load_config(overrides, folder=folder, file=file, environment=variables)
    except ConfigurationError as error:
        if any(finding.level is Level.BROKEN for finding in written):
            yield note("configuration", "database, auth, port, keys and app were not checked")
        else:
            yield broken("configuration", str(error), "mend it; the rest was not checked")
    else:
        async for finding in _configured(config, variables, clock):
            yield finding
    yield disk_finding(folder)
    yield page_finding()
    yield clock_finding(clock)


async def _configured(
    config: Config, variables: Mapping[str, str], clock: Clock
) -> AsyncIterator[Finding]:
    from stepwell.app.diagnosis.settings import key_finding, port_finding

    has_server = not lacking("server")
    if has_server:
        async for finding in _served(config, clock):
            yield finding
    else:
        yield note(
            "database",
            "it was not checked, nor auth and app: the extra server is not installed",
            "pip install 'stepwell[server]'",
        )
    yield port_finding(config.host, config.port)
    yield key_finding(variables, config.model)
    if has_server and config.app is not None:
        yield _application(config)


async def _served(config: Config, clock: Clock) -> AsyncIterator[Finding]:
    """What can only be looked at with the packages of the server."""
    from stepwell.app.diagnosis.database import database_findings
    from stepwell.app.diagnosis.settings import auth_finding

    for finding in await asyncio.to_thread(lambda: list(database_findings(config, clock))):
        yield finding
    yield auth_finding(config)


def _application(config: Config) -> Finding:
    """Whether what is to be served can be loaded."""
    from stepwell.app.loading import load_app

    try:
        names = load_app(config).agents.names
    except ConfigurationError as error:
        return broken("app", f"{config.app}: {error}", "mend app, or the module that it names")
    return ok("app", f"{config.app} has {', '.join(names)}")
