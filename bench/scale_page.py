"""Writes the figures of saved runs into the tables of docs/reference/scale.md."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "scale.md"
_TABLE = "<!-- {name} -->\n{table}<!-- end of {name} -->"
_COSTS = {
    "a send with its new session": ("server_ms_per_send", None, "database_ms_per_send"),
    "a step with a result of 1 KB": (None, "worker_ms_per_step", "database_ms_per_step"),
    "a streamed second, followed by one": (
        "server_ms_per_streamed_s",
        "worker_ms_per_streamed_s",
        "database_ms_per_streamed_s",
    ),
}
_RUN = {
    "workers": "workers",
    "servers": "servers",
    "database_cores": "database cores",
    "steps_per_s": "steps/s",
    "worker_use": "workers used",
    "server_use": "servers used",
    "database_use": "database used",
    "send_p99_ms": "send p99, ms",
    "step_lag_p99_ms": "step delay p99, ms",
}


def refresh_page(measured: Mapping[str, Any], simulated: Mapping[str, Any]) -> None:
    """Write the tables anew."""
    PAGE.write_text(with_tables(PAGE.read_text(), measured, simulated))


def with_tables(page: str, measured: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    """The page with the tables of these runs."""
    tables = {
        "costs": _costs_table(measured),
        "simulation": _simulation_table(simulated),
    }
    for name, table in tables.items():
        pattern = re.compile(rf"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)
        if not pattern.search(page):
            raise ValueError(f"{PAGE.name} has no place for the table {name!r}")
        page = pattern.sub(lambda _, it=(name, table): _TABLE.format(name=it[0], table=it[1]), page)
    return page


def _costs_table(measured: Mapping[str, Any]) -> str:
    figures, machine = measured["figures"], measured["machine"]
    rows = ["| CPU, ms | server | worker | PostgreSQL | of each, one core carries |"]
    rows.append("|---|---|---|---|---|")
    for name, keys in _COSTS.items():
        values = [None if key is None else figures[key] for key in keys]
        cells = ["" if value is None else f"{value:.1f}" for value in values]
        carried = [
            f"{1000 / value:.0f}/s ({tier})"
            for tier, value in zip(("server", "worker", "PostgreSQL"), values, strict=True)
            if value
        ]
        rows.append(f"| {name} | {' | '.join(cells)} | {', '.join(carried)} |")
    note = (
        f"Measured on {machine['processors']} processors at a load average of "
        f"{machine['load_average']}, Python {measured['versions']['python']}."
    )
    return "\n".join(rows) + f"\n\n{note}\n"


def _simulation_table(simulated: Mapping[str, Any]) -> str:
    rows = [f"| | {' | '.join(_RUN.values())} |", "|---" * (len(_RUN) + 1) + "|"]
    for name, run in simulated["runs"].items():
        cells = [f"{run[key]:.0%}" if key.endswith("_use") else f"{run[key]:.0f}" for key in _RUN]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
