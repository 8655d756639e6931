"""An optional bridge to pydantic-ai models, for providers without a wire format here.

Needs the extra ``stepwell[pydantic-ai]``. Nothing else imports it. pydantic-ai is loaded when the
first model is created.
"""

from stepwell.models.pydantic_ai.model import PydanticAiModel

__all__ = ["PydanticAiModel"]
