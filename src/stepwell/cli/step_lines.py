"""Formats steps and decisions of a trace as lines. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from stepwell.cli.terminal import Style, clip, indent, line_of, one_line, printable, seconds
from stepwell.continuation.explain import shown_number

Step = Mapping[str, Any]
_OUTCOMES = {
    "completed": "done",
    "failed": "failed",
    "raised": "raised an error",
    "invalid": "was called wrongly",
    "timed_out": "timed out",
    "not_found": "is unknown",
    "blocked": "was blocked",
    "cancelled": "was cancelled",
    "not_run": "was not run",
    "pending": "waits for an answer",
    "unknown": "has an unknown outcome",
}


def heading_line(trace: Mapping[str, Any], style: Style) -> str:
    """Return the id, status and totals of the execution."""
    execution = trace["execution"]
    steps = execution["step_count"]
    facts = [f"{steps} step{'' if steps == 1 else 's'}", f"{execution['token_usage']} tokens"]
    if execution["cost"]:
        facts.append(f"${execution['cost']:.4f}")
    facts.append(seconds(sum(step["duration_seconds"] for step in trace["steps"])))
    status = style.status(execution["status"])
    return f"{style.bold(execution['id'])} of {execution['agent_type']}: {status}, " + ", ".join(
        facts
    )


def decision_line(step: Step, style: Style) -> str:
    """Return the decision after a step, with who decided and why."""
    return outcome_line(step["decision"], style)


def outcome_line(decision: Mapping[str, Any], style: Style) -> str:
    """Format an outcome as one line."""
    who, why = decider_and_reason(decision)
    if decision["should_continue"]:
        verb = style.dim("continues")
    else:
        reason = decision["stop_reason"]
        verb = style.bold(f"{'pauses' if reason == 'input_required' else 'stops'} ({reason})")
    return f"{verb}, {who}: {one_line(why, 160)}"


def decider_and_reason(decision: Mapping[str, Any]) -> tuple[str, str]:
    """Return who decided and why; it may be no single vote."""
    name, votes = decision["resolved_by"], decision["evaluations"]
    for vote in votes:
        if vote["criterion"] == name and vote["decision"] == decision["decision"]:
            return name, vote["reason"]
    if not votes:
        return "nobody", "no criterion is registered"
    return "all votes together", f"{len(votes)} votes, none was decisive"


def step_line(step: Step, style: Style) -> str:
    """Format a step as one line: number, type, tools, duration, tokens."""
    tools = ", ".join(_tool_word(ran) for ran in step["tool_executions"])
    said = tools or one_line(step["text"], 60) or _error(step)
    word = str(step["type"])
    painted = style.bad(word.ljust(15)) if word == "error" else word.ljust(15)
    facts = f"{seconds(step['duration_seconds'])}, {step['usage']['total_tokens']} tokens"
    return f"{step['number']:>3}  {painted} {said}  {style.dim(f'({facts})')}"


def _tool_word(ran: Mapping[str, Any]) -> str:
    name, outcome = printable(ran["name"]), ran["outcome"]
    return name if outcome == "completed" else f"{name} ({outcome})"


def _error(step: Step) -> str:
    return next((one_line(error["message"], 80) for error in step["errors"]), "")


def vote_lines(decision: Mapping[str, Any]) -> Iterator[str]:
    """Yield every vote with its numbers."""
    votes = decision["evaluations"]
    width = max((len(vote["criterion"]) for vote in votes), default=0)
    for vote in votes:
        numbers = ", ".join(
            f"{name}={shown_number(value)}" for name, value in vote["context"].items()
        )
        context = f"  [{printable(numbers)}]" if numbers else ""
        why = one_line(vote["reason"], 160)
        yield f"{vote['decision']:<10}  {vote['criterion']:<{width}}  {why}{context}"


def whole_step(step: Step, style: Style, *, full: bool) -> Iterator[str]:
    """Yield a step with the text of the model and its tool calls."""

    def fit(text: str) -> str:
        return printable(text) if full else clip(text)

    usage, number = step["usage"], step["number"]
    facts = [
        str(step["type"]),
        seconds(step["duration_seconds"]),
        f"{usage['input_tokens']} + {usage['output_tokens']} tokens",
    ]
    if usage["cached_tokens"]:
        facts.append(f"{usage['cached_tokens']} cached")
    if step["cost"]:
        facts.append(f"${step['cost']:.4f}")
    facts += [one_line(str(fact)) for fact in (step["model"], step["finish_reason"]) if fact]
    yield style.bold(f"Step {number}") + "  " + style.dim(", ".join(facts))
    if step["thinking"]:
        yield indent(style.dim(f"(thinking) {fit(step['thinking'])}"))
    if step["text"]:
        yield indent(fit(step["text"]))
    for ran in step["tool_executions"]:
        yield from _tool_lines(ran, style, fit)
    of_tools = [ran["error"] for ran in step["tool_executions"]]
    for error in step["errors"]:
        if error not in of_tools:
            yield indent(style.bad(one_line(f"{error['exception']}: {error['message']}", 400)))
    yield f"  {outcome_line(step['decision'], style)}"


def _tool_lines(ran: Mapping[str, Any], style: Style, fit: Any) -> Iterator[str]:
    arguments = fit(line_of(ran["arguments"]))
    took = style.dim(f"({seconds(ran['duration_seconds'])})")
    word = _OUTCOMES.get(ran["outcome"], str(ran["outcome"]))
    painted = style.good(word) if ran["outcome"] == "completed" else style.warm(word)
    yield f"    {style.bold(printable(ran['name']))} {arguments}  {painted} {took}"
    if ran["result"]:
        yield indent(fit(ran["result"]), "      ")
