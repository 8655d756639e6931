"""Agents that an agent spawns for a task of their own, from a registry of specs."""

from stepwell.capabilities.subagents.capability import UseSubagents
from stepwell.capabilities.subagents.policy import SubagentPolicy
from stepwell.capabilities.subagents.spawn import SkillSource, SpawnSubagentTool

__all__ = ["SkillSource", "SpawnSubagentTool", "SubagentPolicy", "UseSubagents"]
