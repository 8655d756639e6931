"""Runs all checks in order; a failing one does not stop the others."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from stepwell.app.config import Config, load_config
from stepwell.app.diagnosis.findings import Finding, Level, broken, note, ok
from stepwell.app.diagnosis.packages import missing_modules, package_findings
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
    """Yield the findings as they are made."""
    variables = os.environ if environment is None else environment
    clock = clock or SystemClock()
    for finding in package_findings():
        yield finding
    # Only now: where a package that these need is missing, that was reported.
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
            yield broken("configuration", str(error), "fix it; the rest was not checked")
    else:
        async for finding in _check_configuration(config, variables, clock):
            yield finding
    yield disk_finding(folder)
    yield page_finding()
    yield clock_finding(clock)


async def _check_configuration(
    config: Config, variables: Mapping[str, str], clock: Clock
) -> AsyncIterator[Finding]:
    from stepwell.app.diagnosis.settings import key_finding, port_finding

    has_server = not missing_modules("server")
    if has_server:
        async for finding in _check_server(config, clock):
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


async def _check_server(config: Config, clock: Clock) -> AsyncIterator[Finding]:
    """Run the checks that need the packages of the server."""
    from stepwell.app.diagnosis.database import database_findings
    from stepwell.app.diagnosis.settings import auth_finding

    for finding in await asyncio.to_thread(lambda: list(database_findings(config, clock))):
        yield finding
    yield auth_finding(config)


def _application(config: Config) -> Finding:
    """Check that the application can be loaded."""
    from stepwell.app.app_loader import load_app

    try:
        names = load_app(config).agents.names
    except ConfigurationError as error:
        return broken("app", f"{config.app}: {error}", "fix app, or the module that it names")
    return ok("app", f"{config.app} has {', '.join(names)}")
