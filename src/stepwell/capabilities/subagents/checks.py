"""Looks for names in specs that nothing here has, when an agent is built: a mistake in code is an
error, one in a file a remark, so that no file keeps an agent from being built.
"""

from collections.abc import Collection, Container, Iterable

from stepwell.agent.registry import AgentRegistry
from stepwell.agent.spec import AgentSpec, tools_meant
from stepwell.capabilities.subagents.spawn import SkillSource
from stepwell.errors import ConfigurationError


def checked_specs(
    registry: AgentRegistry, tools: Collection[str], skills: SkillSource | None
) -> list[str]:
    """What is odd in specs, at most one remark on each; raises ``ConfigurationError`` for a mistake
    in one that was registered in code."""
    remarks: list[str] = []
    for spec in registry.specs:
        source = registry.source_of(spec.name)
        unknown_skills = _skills_fault(spec, skills)
        missing = spec.missing_tools(tools)
        mistakes = [_tools_fault(spec, filter(_is_plain, missing), tools), unknown_skills]
        if source is None and spec.trusted and any(mistakes):
            raise ConfigurationError("; ".join(filter(None, mistakes)))
        odd = [_tools_fault(spec, missing, tools), unknown_skills]
        if any(odd):
            place = "" if source is None else f"{source}: "
            remarks.append(f"{place}{'; '.join(filter(None, odd))}")
    return remarks


def _is_plain(entry: str) -> bool:
    """Whether an entry can only be the name of one of our tools or of the host's. Patterns, words
    of other programs and limits may well mean nothing here."""
    return "*" not in entry and "(" not in entry and tools_meant(entry, None) == (entry,)


def _tools_fault(spec: AgentSpec, missing: Iterable[str], tools: Collection[str]) -> str:
    named = ", ".join(missing)
    if not named:
        return ""
    return (
        f"the agent {spec.name!r} names tools that its parent does not have: {named}; tools: "
        f"{', '.join(sorted(tools))}"
    )


def _skills_fault(spec: AgentSpec, skills: SkillSource | None) -> str:
    if spec.skills and skills is None:
        return (
            f"the agent {spec.name!r} needs the skills {', '.join(spec.skills)}, and no library "
            "was given; write UseSubagents(registry, skills=library)"
        )
    if not spec.skills or not isinstance(skills, Container):
        return ""  # A source that can only get them may be slow; spawning tells.
    missing = ", ".join(name for name in spec.skills if name not in skills)
    known = ", ".join(getattr(skills, "names", ())) or "(none)"
    if not missing:
        return ""
    return f"the agent {spec.name!r} names skills that are not there: {missing}; skills: {known}"
