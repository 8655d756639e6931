"""Texts about skills for the model: the list of skills and a loaded skill."""

from collections.abc import Collection, Sequence

from stepwell.capabilities.skills.allow_list import (
    ALWAYS_ALLOWED,
    LOAD_SKILL,
    PLAIN_COMMANDS,
    AllowList,
)
from stepwell.capabilities.skills.skill import Skill, SkillSummary
from stepwell.text import truncate_after

NO_SKILLS = "(no skills available)"
MAX_LISTED_DESCRIPTION = 300


def format_skill_list(summaries: Sequence[SkillSummary], max_chars: int) -> str:
    """List names and descriptions in at most ``max_chars``, with a note on what is left out.

    If the descriptions no longer fit, names follow without them, and then their number.
    """
    if not summaries:
        return NO_SKILLS
    lines = [_line(summary) for summary in summaries]
    if sum(len(line) + 1 for line in lines) <= max_chars:
        return "\n".join(lines)
    used, count = 0, 0
    while used + len(lines[count]) + 1 <= max_chars * 3 // 4:
        used += len(lines[count]) + 1
        count += 1
    return "\n".join([*lines[:count], *_name_lines(summaries[count:], max_chars - used)])


def _name_lines(summaries: Sequence[SkillSummary], room: int) -> list[str]:
    names: list[str] = []
    for summary in summaries:
        if len(summary.name) + 2 > room:
            break
        names.append(summary.name)
        room -= len(summary.name) + 2
    lines = [f"- without descriptions: {', '.join(names)}"] if names else []
    left = len(summaries) - len(names)
    return [*lines, f"- and {left} more that are not listed"] if left else lines


def _line(summary: SkillSummary) -> str:
    description = truncate_after(" ".join(summary.description.split()), MAX_LISTED_DESCRIPTION)
    return f"- {summary.name}: {description}" if description else f"- {summary.name}"


def announcement(listed: str) -> str:
    """Return the note on skills at the start of the prompt."""
    return (
        "Skills are instructions for special tasks. If a task matches one of these, call "
        f"{LOAD_SKILL} with its name before you start, and follow its instructions:\n{listed}"
    )


def format_loaded_skill(
    skill: Skill, text: str, allowed: AllowList | None, offered: Collection[str]
) -> str:
    """Format a skill as the result of the call that loaded it, for an agent with these tools."""
    lines = [describe_skill(skill, f"{LOAD_SKILL}(name={skill.name!r}, resource=...)")]
    if allowed is not None:
        lines += _restriction(allowed, offered)
    return "\n".join([*lines, "", text])


def _restriction(allowed: AllowList, offered: Collection[str]) -> list[str]:
    more = [name for name in ALWAYS_ALLOWED if name in offered and name not in allowed.entries]
    always = ", ".join(more or [LOAD_SKILL])
    return [
        f"Allowed tools while this skill is active: {allowed}, and always {always}.",
        *([PLAIN_COMMANDS] if allowed.limits_bash else []),
        f"When you are done with it, call {LOAD_SKILL}(done=True) to deactivate the skill and get "
        "your other tools back.",
    ]


def describe_skill(skill: Skill, reader: str) -> str:
    """Describe a skill's directory and resources; ``reader`` is the call that reads a resource."""
    lines = [f"Skill: {skill.name}"]
    if skill.directory is not None:
        lines.append(f"Directory: {skill.shown_directory}")
    if skill.resources:
        lines.append(f"Resources in its directory (read one with {reader}):")
        lines += [f"- {path}" for path in skill.resources]
    return "\n".join(lines)
