"""Agents: the plan, the two doors to it, and agents as classes."""

from stepwell.agent.agent import Agent
from stepwell.agent.builder import AgentBuilder
from stepwell.agent.definition import (
    AgentContract,
    AgentContractRegistry,
    AgentDefinition,
    AgentDescriptor,
    AgentFactory,
)
from stepwell.agent.parts import Final, RunPart, StepCompleted, ToolCompleted, ToolStarted
from stepwell.agent.plan import AgentCapability, AgentPlan

__all__ = [
    "Agent",
    "AgentBuilder",
    "AgentCapability",
    "AgentContract",
    "AgentContractRegistry",
    "AgentDefinition",
    "AgentDescriptor",
    "AgentFactory",
    "AgentPlan",
    "Final",
    "RunPart",
    "StepCompleted",
    "ToolCompleted",
    "ToolStarted",
]
