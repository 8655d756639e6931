"""Subagents: agents from a registry that an agent spawns for a task."""

from stepwell.capabilities.subagents.capability import UseSubagents
from stepwell.capabilities.subagents.policy import SubagentPolicy
from stepwell.capabilities.subagents.spawn import SkillSource, SpawnSubagentTool

__all__ = ["SkillSource", "SpawnSubagentTool", "SubagentPolicy", "UseSubagents"]
