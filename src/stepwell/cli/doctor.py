"""``stepwell doctor``: looks at this machine and says how to mend what is missing."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.options import config_option, db_option, json_option

if TYPE_CHECKING:
    from stepwell.app.diagnosis import Finding


@click.command("doctor")
@db_option
@config_option
@json_option
def command(db: str | None, config: Path | None, as_json: bool) -> None:
    """Check versions, sandbox, database, configuration, keys, port and disk.

    Nothing is changed, and no key or password is shown. Each line begins with ✓ (well), ! (good
    to know) or ✗ (to be mended) and says what to do. Exit code 0 if nothing needs mending, else 5.
    """
    from stepwell.app.diagnosis import Level
    from stepwell.cli.closed_pipes import while_read

    findings = asyncio.run(_found(db, config, tell=not as_json))
    faults = [finding for finding in findings if finding.level is Level.BROKEN]
    with while_read():
        click.echo(_as_document(findings) if as_json else _summary(len(faults)))
    if faults:
        sys.exit(ExitCode.CONFIGURATION)


def _as_document(findings: "list[Finding]") -> str:
    from msgspec import to_builtins

    from stepwell.app.diagnosis import Level
    from stepwell.cli.terminal import document

    is_ok = all(finding.level is not Level.BROKEN for finding in findings)
    return document({"ok": is_ok, "findings": [to_builtins(finding) for finding in findings]})


def _summary(faults: int) -> str:
    if not faults:
        return "nothing needs mending"
    return f"{faults} thing{'s' if faults > 1 else ''} to mend; then run `stepwell doctor` again"


async def _found(db: str | None, config: Path | None, *, tell: bool) -> "list[Finding]":
    from stepwell.app.diagnosis import diagnosis
    from stepwell.cli.closed_pipes import while_read

    findings: list[Finding] = []
    async for finding in diagnosis(folder=Path.cwd(), file=config, overrides={"db": db}):
        findings.append(finding)
        if tell:
            with while_read():
                _tell(finding)
    return findings


def _tell(finding: "Finding") -> None:
    from stepwell.cli.terminal import out_style, shown

    style = out_style()
    paint = {"ok": style.good, "note": style.warm, "broken": style.bad}[finding.level]
    lines = shown(finding.text).splitlines() or [""]
    click.echo(f"{paint(finding.mark)} {finding.about}: {lines[0]}")
    for line in lines[1:]:
        click.echo(f"    {line}")
    if finding.fix is not None:
        click.echo(f"    {style.dim('->')} {shown(finding.fix)}")
