"""An optional bridge: any pydantic-ai model as a model of ours, for providers we don't speak.

Needs the extra ``stepwell[pydantic-ai]``. Nothing else imports it; pydantic-ai is loaded when the
first model is made.
"""

from stepwell.models.pydantic_ai.model import PydanticAiModel

__all__ = ["PydanticAiModel"]
