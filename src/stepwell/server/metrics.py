"""Counters, gauges and histograms in Prometheus' text format. No dependency, no global state.

Labels come from code, never from a client, so the number of series is bounded.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from stepwell.errors import ConfigurationError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of buckets for requests and transactions."""

LabelValues = tuple[str, ...]


class _Family:
    """One metric name with all its labelled series."""

    kind = "untyped"

    def __init__(self, name: str, help: str, labels: Sequence[str]) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)

    def _key(self, given: dict[str, str]) -> LabelValues:
        if len(given) != len(self.labels):
            raise ConfigurationError(f"{self.name} has the labels {self.labels}, got {set(given)}")
        return tuple(given[label] for label in self.labels)

    def _series(self, values: LabelValues, *more: tuple[str, str]) -> str:
        pairs = [*zip(self.labels, values, strict=True), *more]
        inner = ",".join(f'{label}="{_escape(value)}"' for label, value in pairs)
        return f"{{{inner}}}" if inner else ""

    def samples(self) -> Iterator[str]:
        """Yield its lines without the header."""
        raise NotImplementedError

    def lines(self) -> Iterator[str]:
        """Yield its lines in Prometheus' text format."""
        help = self.help.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {self.name} {help}"
        yield f"# TYPE {self.name} {self.kind}"
        yield from self.samples()


class Counter(_Family):
    """A value that only grows."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self._values: dict[LabelValues, float] = {}

    def add(self, amount: float = 1.0, /, **labels: str) -> None:
        """Add to the counter."""
        key = self._key(labels)
        self._values[key] = self._values.get(key, 0.0) + amount

    def value(self, **labels: str) -> float:
        """Return the current value."""
        return self._values.get(self._key(labels), 0.0)

    def samples(self) -> Iterator[str]:
        """Yield its lines without the header."""
        if not self.labels and not self._values:
            yield f"{self.name} 0"
        for key, value in sorted(self._values.items()):
            yield f"{self.name}{self._series(key)} {_number(value)}"


class Gauge(Counter):
    """A value that goes up and down."""

    kind = "gauge"

    def set(self, value: float, /, **labels: str) -> None:
        """Set the value."""
        self._values[self._key(labels)] = value


class Histogram(_Family):
    """Counts values by size, with their number and sum."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS
    ) -> None:
        super().__init__(name, help, labels)
        self._bounds = tuple(sorted(bounds))
        self._counts: dict[LabelValues, list[int]] = {}
        self._sums: dict[LabelValues, float] = {}

    def observe(self, value: float, /, **labels: str) -> None:
        """Add a value."""
        key = self._key(labels)
        counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def samples(self) -> Iterator[str]:
        """Yield its lines without the header."""
        for key, counts in sorted(self._counts.items()):
            seen = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                seen += count
                yield f"{self.name}_bucket{self._series(key, ('le', _number(bound)))} {seen}"
            yield f"{self.name}_sum{self._series(key)} {_number(self._sums[key])}"
            yield f"{self.name}_count{self._series(key)} {seen}"


class Metrics:
    """The metrics of this process. Transactions named ``step`` are steps that it ran."""

    def __init__(self) -> None:
        self.requests = Counter(
            "stepwell_http_requests_total",
            "Requests answered, by route and status.",
            ("method", "route", "status"),
        )
        self.request_seconds = Histogram(
            "stepwell_http_request_seconds",
            "Time from a request to the start of its response.",
            ("method", "route"),
        )
        self.sends = Counter("stepwell_sends_total", "Messages sent, by result.", ("result",))
        self.refused = Counter("stepwell_refused_total", "Requests refused by a limit.", ("limit",))
        self.errors = Counter(
            "stepwell_errors_total", "Requests that failed with an internal error."
        )
        self.live_connections = Gauge(
            "stepwell_live_connections", "Open live connections.", ("kind",)
        )
        self.followed = Gauge("stepwell_followed_sessions", "Sessions that somebody follows.")
        self.followers = Gauge("stepwell_followers", "Followers of sessions.")
        self.executions = Gauge(
            "stepwell_executions", "Executions that are not over, by status.", ("status",)
        )
        self.writes = Histogram(
            "stepwell_write_seconds", "Time of a transaction, by its name.", ("name",)
        )

    def families(self) -> Iterator[_Family]:
        """Yield all metrics by name."""
        mine = [family for family in vars(self).values() if isinstance(family, _Family)]
        yield from sorted(mine, key=lambda family: family.name)

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return "\n".join(line for family in self.families() for line in family.lines()) + "\n"


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
