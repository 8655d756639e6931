"""``stepwell models``: list the available models, and test one."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.options import json_option

if TYPE_CHECKING:
    from stepwell.cli.model_trial import Trial
    from stepwell.models import Model, ModelPresets
    from stepwell.models.provider import Provider

PRESETS_FILE = "models.toml"


@click.group("models", invoke_without_command=True)
@click.option(
    "--presets",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help=f"File with presets and providers.  [default: {PRESETS_FILE}, if it exists]",
)
@json_option
@click.pass_context
def command(ctx: click.Context, presets: Path | None, as_json: bool) -> None:
    """List the available models and whether their key is set. Keys are never shown.

    \b
    stepwell models
    stepwell models test openai:gpt-5
    stepwell models test qwen3 --base-url http://localhost:11434/v1
    """
    known = known_presets(presets)
    ctx.obj = known
    if ctx.invoked_subcommand is not None:
        return
    from stepwell.cli.terminal import document, table

    providers = [_provider_data(provider) for provider in known.providers.values()]
    if as_json:
        click.echo(document({"presets": _preset_data(known), "providers": providers}))
        return
    for preset in _preset_data(known):
        click.echo(f"{preset['name']}  {preset['model']}")
    rows = [[p["name"], p["key"], p["default_model"] or "-", p["base_url"]] for p in providers]
    click.echo(table([["PROVIDER", "KEY", "DEFAULT MODEL", "ADDRESS"], *rows]))
    click.echo("test a model: stepwell models test PROVIDER:MODEL", err=True)


def known_presets(file: Path | None) -> "ModelPresets":
    """Load the presets of the file, or of the one in the current folder."""
    from stepwell.models import ModelPresets

    path = file or Path(PRESETS_FILE)
    return ModelPresets.from_toml(path) if path.is_file() else ModelPresets()


def _provider_data(provider: "Provider") -> dict[str, Any]:
    from stepwell.app.config import without_password
    from stepwell.models.api_key import from_environment

    address = provider.base_url_env and from_environment(provider.base_url_env)
    key = "not needed"
    if provider.key_env is not None:
        is_set = from_environment(provider.key_env) is not None
        key = f"{provider.key_env} is {'set' if is_set else 'not set'}"
    return {
        "name": provider.name,
        "key": key,
        "default_model": provider.default_model,
        "base_url": without_password(address or provider.base_url)
        or f"(set {provider.base_url_env})",
        "format": provider.wire.name,
    }


def _preset_data(presets: "ModelPresets") -> list[dict[str, str]]:
    from stepwell.errors import ConfigurationError

    presets_data: list[dict[str, str]] = []
    for name in presets.names:
        try:
            presets_data.append({"name": name, "model": presets.model(name).name})
        except ConfigurationError as error:
            presets_data.append({"name": name, "model": f"({error})"})
    return presets_data


@command.command("test")
@click.argument("preset")
@click.option(
    "--base-url",
    help="URL of another server; PRESET is then its model, or provider:model for the protocol.",
)
@click.option(
    "--key-env",
    help="Environment variable with the key for --base-url.  [default: send no key]",
)
@json_option
@click.pass_obj
def test(
    presets: "ModelPresets", preset: str, base_url: str | None, key_env: str | None, as_json: bool
) -> None:
    """Send two small requests and report what works: text, streaming, tool calls, usage, cost.

    It costs a few hundred tokens. The exit code is 1 if something that agents need does not work.

    \b
    stepwell models test anthropic:claude-sonnet-4-6
    stepwell models test my-model --base-url http://localhost:8000/v1 --key-env MY_KEY
    """
    from stepwell.cli.model_trial import try_model
    from stepwell.cli.terminal import document
    from stepwell.clock import SystemClock

    model = _model(presets, preset, base_url, key_env)
    if not as_json:
        click.echo(f"testing {model.name} ...", err=True)
    trial = asyncio.run(try_model(model, SystemClock()))
    if as_json:
        click.echo(document(trial.as_data()))
    else:
        for line in _trial_lines(trial):
            click.echo(line)
    sys.exit(ExitCode.COMPLETED if trial.is_good else ExitCode.FAILED)


def _model(
    presets: "ModelPresets", preset: str, base_url: str | None, key_env: str | None
) -> "Model":
    from msgspec.structs import replace

    from stepwell.models.api_key import ApiKey
    from stepwell.models.provider import PLAIN_HEADERS, Provider

    if base_url is None:
        if key_env is not None:
            raise click.UsageError(
                "--key-env needs --base-url; named providers have their own key."
            )
        return presets.model(preset)
    key = None if key_env is None else ApiKey.from_env(key_env, owner="compatible")
    name, colon, model = preset.partition(":")
    named = presets.providers.get(name) if colon else None
    if named is None:
        return Provider.compatible(base_url).model(preset, api_key=key)
    # Its own key, and headers that may contain one, must not go to another address.
    plain = {name: text for name, text in named.headers.items() if name.lower() in PLAIN_HEADERS}
    elsewhere = replace(named, key_env=None, headers=plain)
    return elsewhere.model(model or None, base_url=base_url, api_key=key)


def _trial_lines(trial: "Trial") -> Iterator[str]:
    from stepwell.cli.terminal import out_style, printable

    style = out_style()
    for check in trial.checks:
        mark = style.good("ok  ") if check.is_good else style.bad("no  ")
        yield f"{mark} {check.name.ljust(14)} {printable(check.words)}"
    if trial.fault is not None:
        yield style.bad(printable(trial.fault))
