"""The simulation behind docs/reference/scale.md, and that the page has the saved figures."""

from bench import results
from bench.scale import Costs, Load, Machines, Simulation, needed
from bench.scale_page import PAGE, with_tables

COSTS = Costs(
    server_ms_per_send=2.0,
    database_ms_per_send=1.0,
    worker_ms_per_step=5.0,
    database_ms_per_step=2.0,
    server_ms_per_streamed_s=1.0,
    worker_ms_per_streamed_s=2.0,
    database_ms_per_streamed_s=0.5,
)
LOAD = Load(sessions=300, think_seconds=5.0)


def test_the_needed_machines_keep_up_at_about_the_use_they_were_computed_for() -> None:
    machines = needed(COSTS, LOAD, use=0.6)
    figures = Simulation(COSTS, LOAD, machines).run(60.0)
    for tier in ("worker_use", "server_use", "database_use"):
        assert 0.02 < figures[tier] < 0.8
    assert figures["steps_per_s"] > 10
    assert figures["seat_wait_p99_ms"] == 0
    assert figures["seats_used"] <= LOAD.sessions


def test_too_few_seats_make_executions_wait() -> None:
    few = Machines(workers=1, servers=1, database_cores=1, seats=10)
    figures = Simulation(COSTS, LOAD, few).run(60.0)
    assert figures["seats_used"] == 10
    assert figures["seat_wait_p99_ms"] > 1000


def test_a_tier_that_is_too_small_is_fully_used_and_falls_behind() -> None:
    heavy = Costs(**{name: getattr(COSTS, name) * 10 for name in Costs.__struct_fields__})
    one = Machines(workers=1, servers=20, database_cores=20)
    figures = Simulation(heavy, LOAD, one).run(60.0)
    assert figures["worker_use"] > 0.95
    assert figures["step_lag_p99_ms"] > figures["send_p99_ms"]


def test_the_same_seed_gives_the_same_figures() -> None:
    machines = needed(COSTS, LOAD)
    first, second = (Simulation(COSTS, LOAD, machines).run(20.0) for _ in range(2))
    assert first == second


def test_the_page_has_the_figures_of_the_saved_runs() -> None:
    measured, simulated = results.load("server"), results.load("scale")
    assert measured is not None
    assert simulated is not None
    page = PAGE.read_text()
    assert with_tables(page, measured, simulated) == page
