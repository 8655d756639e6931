"""A sandbox that runs nothing: its results are written by the test."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from stepwell.errors import ConfigurationError, StepwellError
from stepwell.sandbox import Channel, ExecutionPolicy, OutputListener, SandboxResult

Queued = SandboxResult | str | Exception


class FakeRun(Struct, frozen=True, kw_only=True):
    """What the sandbox was asked to run."""

    argv: tuple[str, ...]
    policy: ExecutionPolicy
    stdin: bytes


class FakeSandbox:
    """Answers with queued results in order, and remembers in ``runs`` what it was asked.

    A result is a ``SandboxResult``, a text (said on stdout, exit code 0), or an exception to raise.

    >>> sandbox = FakeSandbox(["3 passed", SandboxResult(exit_code=1, stderr="no such file")])
    >>> sandbox.name, len(sandbox.runs)
    ('fake', 0)
    """

    confines = False
    """So that nobody asks it for a proof."""

    def __init__(self, results: Iterable[Queued] = (), *, name: str = "fake") -> None:
        if isinstance(results, str):
            raise ConfigurationError(f"results are a list; write FakeSandbox([{results!r}])")
        self.name = name
        self.runs: list[FakeRun] = []
        self._results = list(results)

    def enqueue(self, *results: Queued) -> None:
        """Add results behind those that are queued."""
        self._results.extend(results)

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        """Return the next result. The listener gets its output line by line, stdout first."""
        self.runs.append(FakeRun(argv=tuple(argv), policy=policy, stdin=stdin))
        taken = len(self.runs)
        if taken > len(self._results):
            raise StepwellError(
                f"sandbox {self.name!r} has {len(self._results)} results, and run {taken} was "
                f"asked for: {list(argv)!r:.200}; queue more with enqueue(...)"
            )
        result = _result(self._results[taken - 1])
        if on_output is not None:
            for channel, text in ((Channel.STDOUT, result.stdout), (Channel.STDERR, result.stderr)):
                for line in text.splitlines(keepends=True):
                    on_output(channel, line)
        return result


def _result(queued: Queued) -> SandboxResult:
    if isinstance(queued, Exception):
        raise queued
    if isinstance(queued, str):
        return SandboxResult(exit_code=0, stdout=queued, stdout_bytes=len(queued.encode()))
    return queued
