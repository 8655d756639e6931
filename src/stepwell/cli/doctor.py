"""``stepwell doctor``: check this machine and explain how to fix problems."""

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

    It changes nothing and shows no key or password. Each line starts with ✓ (ok), ! (note) or ✗
    (problem) and says what to do. The exit code is 0 if there is no problem, else 5.
    """
    from stepwell.app.diagnosis import Level
    from stepwell.cli.streams import while_read

    findings = asyncio.run(_diagnose(db, config, tell=not as_json))
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
        return "no problems found"
    return f"{faults} problem{'s' if faults > 1 else ''} found; fix and run `stepwell doctor` again"


async def _diagnose(db: str | None, config: Path | None, *, tell: bool) -> "list[Finding]":
    from stepwell.app.diagnosis import diagnosis
    from stepwell.cli.streams import while_read

    findings: list[Finding] = []
    async for finding in diagnosis(folder=Path.cwd(), file=config, overrides={"db": db}):
        findings.append(finding)
        if tell:
            with while_read():
                _print_finding(finding)
    return findings


def _print_finding(finding: "Finding") -> None:
    from stepwell.cli.terminal import out_style, printable

    style = out_style()
    paint = {"ok": style.good, "note": style.warm, "broken": style.bad}[finding.level]
    lines = printable(finding.text).splitlines() or [""]
    click.echo(f"{paint(finding.mark)} {finding.about}: {lines[0]}")
    for line in lines[1:]:
        click.echo(f"    {line}")
    if finding.fix is not None:
        click.echo(f"    {style.dim('->')} {printable(finding.fix)}")
