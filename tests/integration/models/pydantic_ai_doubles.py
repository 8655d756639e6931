"""What the tests of the bridge share: requests, and pydantic-ai models that a test controls."""

from pydantic_ai import messages as theirs
from pydantic_ai.models.function import FunctionModel

from stepwell import Message, ModelRequest
from stepwell.models import ToolSchema
from stepwell.models.pydantic_ai import PydanticAiModel

ADD = ToolSchema(
    name="add",
    description="Add two numbers.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


def asking(*messages: Message, **rest) -> ModelRequest:
    return ModelRequest(messages=messages or (Message.user("Hi"),), **rest)


class Heard:
    """A pydantic-ai model that keeps what it was asked and answers as told."""

    def __init__(self, *parts, **response) -> None:
        self.messages: list[theirs.ModelMessage] = []
        self.info = None
        self._answer = (parts or (theirs.TextPart("ok"),), response)

    def __call__(self, messages, info):
        self.messages, self.info = messages, info
        parts, response = self._answer
        return theirs.ModelResponse(parts=list(parts), **response)

    def model(self, **options) -> PydanticAiModel:
        return PydanticAiModel(FunctionModel(self, **options))

    @property
    def settings(self):
        return self.info.model_settings or {}

    @property
    def kinds(self) -> list[list[str]]:
        return [[part.part_kind for part in message.parts] for message in self.messages]


async def heard(*messages: Message, **rest) -> Heard:
    listener = Heard()
    await listener.model().respond(asking(*messages, **rest))
    return listener


async def answered(*parts, **response):
    return await Heard(*parts, **response).model().respond(asking())


def streaming(*items, **options) -> PydanticAiModel:
    async def stream(messages, info):
        for item in items:
            if isinstance(item, Exception):
                raise item
            yield item

    return PydanticAiModel(FunctionModel(stream_function=stream, **options))


async def parts_of(
    model: PydanticAiModel, request: ModelRequest | None = None, *, seen: list | None = None
) -> list:
    """All parts of a stream; those that came before an error are in ``seen``."""
    seen = [] if seen is None else seen
    async for part in model.stream(request or asking()):
        seen.append(part)
    return seen
