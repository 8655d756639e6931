"""Agents as data: specs, the registry that finds them, and the Markdown, YAML and JSON files that
describe them."""

from stepwell.specs.parser import AgentSpecParser
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentModel, AgentSpec
from stepwell.specs.yaml import DefinitionError

__all__ = ["AgentModel", "AgentRegistry", "AgentSpec", "AgentSpecParser", "DefinitionError"]
