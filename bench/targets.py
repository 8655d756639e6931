"""The targets of measurements: what a figure may be at most, or must be at least."""

from collections.abc import Mapping

from msgspec import Struct


class Target(Struct, frozen=True):
    """A bound of one figure; one of the two is given."""

    most: float | None = None
    least: float | None = None

    def is_met(self, value: float) -> bool:
        """Whether that value keeps it."""
        if self.most is not None and value > self.most:
            return False
        return self.least is None or value >= self.least

    def __str__(self) -> str:
        return f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"


CORE = {
    "ratio_200": Target(most=12),
    "construct_us": Target(most=150),
    "import_to_first_answer_ratio": Target(most=2.2),
    "concurrent_ratio": Target(most=12),
}

SERVER = {
    "persisted_step_ratio": Target(most=8),
    "sql_per_step": Target(most=10),
    "commits_per_step": Target(most=2),
    "bytes_written_per_step": Target(most=60_000),
    "stream_commits_per_s": Target(most=2),
    "cpu_ms_per_streamed_s": Target(most=10),
    "idle_tx_per_s": Target(most=2),
    "http_send_ratio": Target(most=5),
    "sends_per_s": Target(least=300),
    "storage_ratio_1000": Target(most=4),
    "step_growth_1000_over_10": Target(most=1.2),
}


def verdicts(
    figures: Mapping[str, float], targets: Mapping[str, Target]
) -> dict[str, dict[str, object]]:
    """For each target whose figure was measured: value, bound, and whether it is met."""
    return {
        name: {
            "value": figures[name],
            "target": str(target),
            "met": target.is_met(figures[name]),
        }
        for name, target in targets.items()
        if name in figures
    }
