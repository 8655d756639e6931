"""Describes how a replayed step differs from the stored one. Pure."""

from stepwell.continuation import ContinuationOutcome
from stepwell.state import StepExecution


def outcome_differences(was: ContinuationOutcome, now: ContinuationOutcome) -> list[str]:
    """In words what two outcomes differ in: the end, who decided, each vote."""
    differences: list[str] = []
    if was.stop_reason != now.stop_reason:
        differences.append(f"it {_end(now)}, and it {_end(was, past=True)} then")
    elif was.resolved_by != now.resolved_by or was.decision != now.decision:
        differences.append(
            f"decided by {now.resolved_by} ({now.decision}), by {was.resolved_by} "
            f"({was.decision}) then"
        )
    before, after = _votes(was), _votes(now)
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        if other is None:
            differences.append(f"{name} has no vote, and said {one} then")
        elif one is None:
            differences.append(f"{name} says {other}, and had no vote then")
        else:
            differences.append(f"{name} says {other}, and said {one} then")
    return differences


def _end(outcome: ContinuationOutcome, *, past: bool = False) -> str:
    if outcome.stop_reason is None:
        return "went on" if past else "goes on"
    return f"{'stopped' if past else 'stops'} ({outcome.stop_reason})"


def _votes(outcome: ContinuationOutcome) -> dict[str, str]:
    votes: dict[str, list[str]] = {}
    for vote in outcome.evaluations:
        votes.setdefault(vote.criterion, []).append(str(vote.decision))
    return {name: ", ".join(sorted(said)) for name, said in votes.items()}


def tool_differences(was: StepExecution, now: StepExecution) -> list[str]:
    """In words which calls came to something else."""
    before = {ran.call.id: ran for ran in was.step.tool_executions}
    return [
        f"{ran.call.name} is {ran.outcome}, and was {before[ran.call.id].outcome} then"
        for ran in now.step.tool_executions
        if ran.call.id in before and ran.outcome is not before[ran.call.id].outcome
    ]
