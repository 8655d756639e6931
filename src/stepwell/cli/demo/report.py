"""The result of checking the demo, for people and for programs."""

from msgspec import Struct, json, to_builtins


class Part(Struct, frozen=True, kw_only=True):
    """One part of the demo, and whether it happened."""

    name: str
    happened: bool
    seconds: float
    detail: str = ""

    @property
    def line(self) -> str:
        """Return a line for the checklist.

        >>> Part(name="a limit", happened=True, seconds=1.25, detail="12 steps").line
        '✓  1.2 s  a limit: 12 steps'
        """
        mark = "✓" if self.happened else "✗"
        detail = " ".join(self.detail.split())
        return f"{mark} {self.seconds:4.1f} s  {self.name}{': ' if detail else ''}{detail}"


class Report(Struct, frozen=True, kw_only=True):
    """All parts, in order."""

    parts: tuple[Part, ...]
    seconds: float
    ready_seconds: float | None = None

    @property
    def missing(self) -> tuple[Part, ...]:
        """The parts that did not happen."""
        return tuple(part for part in self.parts if not part.happened)

    @property
    def is_whole(self) -> bool:
        """Whether every part happened."""
        return bool(self.parts) and not self.missing


def report_text(report: Report, *, as_json: bool = False) -> str:
    """Format the result as lines, one for each missing part, or as JSON."""
    if as_json:
        result = {"ok": report.is_whole, **to_builtins(report)}
        return json.format(json.encode(result), indent=2).decode()
    if report.is_whole:
        return f"ok: all {len(report.parts)} parts of the demo happened, in {report.seconds:.1f} s"
    missing = [f"missing: {part.name}: {part.detail}" for part in report.missing]
    count = len(report.missing)
    return "\n".join([f"not ok: {count} of {len(report.parts)} parts did not happen", *missing])
