"""Skills: instructions in SKILL.md files that a model loads when it needs them."""

from stepwell.capabilities.skills.active import ActiveSkill
from stepwell.capabilities.skills.capability import UseSkills
from stepwell.capabilities.skills.library import SkillLibrary, SkillNotFoundError
from stepwell.capabilities.skills.shell import ShellPreprocessing
from stepwell.capabilities.skills.skill import Skill, SkillSummary
from stepwell.capabilities.skills.tool import LoadSkillTool

__all__ = [
    "ActiveSkill",
    "LoadSkillTool",
    "ShellPreprocessing",
    "Skill",
    "SkillLibrary",
    "SkillNotFoundError",
    "SkillSummary",
    "UseSkills",
]
