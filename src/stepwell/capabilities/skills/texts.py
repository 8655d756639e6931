"""What the model is shown of skills: the list of them, and one that was loaded."""

from collections.abc import Collection, Sequence

from stepwell.capabilities.skills.allow_list import (
    ALWAYS_ALLOWED,
    LOAD_SKILL,
    PLAIN_COMMANDS,
    AllowList,
)
from stepwell.capabilities.skills.skill import Skill, SkillSummary

NO_SKILLS = "(no skills available)"
MAX_LISTED_DESCRIPTION = 300


def skill_list(summaries: Sequence[SkillSummary], max_chars: int) -> str:
    """Names and descriptions within so many characters; it says what was cut.

    Once the descriptions no longer fit, names follow alone, and then their number.
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
    return "\n".join([*lines[:count], *_names_alone(summaries[count:], max_chars - used)])


def _names_alone(summaries: Sequence[SkillSummary], room: int) -> list[str]:
    names: list[str] = []
    for summary in summaries:
        if len(summary.name) + 2 > room:
            break
        names.append(summary.name)
        room -= len(summary.name) + 2
    said = [f"- without their descriptions, for lack of room: {', '.join(names)}"] if names else []
    left = len(summaries) - len(names)
    return [*said, f"- and {left} more that are not listed"] if left else said


def _line(summary: SkillSummary) -> str:
    description = " ".join(summary.description.split())
    if len(description) > MAX_LISTED_DESCRIPTION:
        description = f"{description[:MAX_LISTED_DESCRIPTION].rstrip()}..."
    return f"- {summary.name}: {description}" if description else f"- {summary.name}"


def announcement(listed: str) -> str:
    """What stands at the start of the prompt."""
    return (
        "Skills are instructions for special tasks. When a task fits one of these, call "
        f"{LOAD_SKILL} with its name before you begin, and follow what it says:\n{listed}"
    )


def loaded_skill(
    skill: Skill, text: str, allowed: AllowList | None, offered: Collection[str]
) -> str:
    """A skill as the result of the call that loaded it, by an agent with the offered tools."""
    lines = [described_skill(skill, f"{LOAD_SKILL}(name={skill.name!r}, resource=...)")]
    if allowed is not None:
        lines += _restriction(allowed, offered)
    return "\n".join([*lines, "", text])


def _restriction(allowed: AllowList, offered: Collection[str]) -> list[str]:
    more = [name for name in ALWAYS_ALLOWED if name in offered and name not in allowed.entries]
    always = ", ".join(more or [LOAD_SKILL])
    return [
        f"Allowed tools while this skill is active: {allowed}, and always {always}.",
        *([PLAIN_COMMANDS] if allowed.limits_bash else []),
        f"When you are done with it, call {LOAD_SKILL}(done=True): it puts the skill down, and you "
        "have your other tools again.",
    ]


def described_skill(skill: Skill, reader: str) -> str:
    """Where a skill lies and which resources it has; ``reader`` is the call that reads one."""
    lines = [f"Skill: {skill.name}"]
    if skill.directory is not None:
        lines.append(f"Directory: {skill.directory}")
    if skill.resources:
        lines.append(f"Resources in its directory; {reader} reads one:")
        lines += [f"- {path}" for path in skill.resources]
    return "\n".join(lines)
