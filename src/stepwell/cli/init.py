"""``stepwell init``: create a runnable project."""

from pathlib import Path

import click


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def command(folder: Path, force: bool) -> None:
    """Create a runnable project in FOLDER (default: the current folder).

    It has an agent, a tool, a skill, tests and a configuration. It runs without a key: its answers
    are scripted until you configure a model.
    """
    from stepwell.app.scaffold import make_project

    for name in make_project(folder, force=force):
        click.echo(str(folder / name))
    click.echo("", err=True)
    click.echo("Next:", err=True)
    if folder.resolve() != Path.cwd():
        click.echo(f"  cd {_quote(folder)}", err=True)
    click.echo("  stepwell serve    # the page, on http://127.0.0.1:8400", err=True)
    click.echo("  stepwell chat     # in the terminal", err=True)
    click.echo("  pytest            # its tests (pip install pytest)", err=True)


def _quote(folder: Path) -> str:
    import shlex

    return shlex.quote(str(folder))
