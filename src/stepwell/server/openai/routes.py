"""The routes of OpenAI's API."""

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from stepwell.server.openai.door import chat_completion, create_response
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    SendAccessDep,
    answer,
    route_docs,
)
from stepwell.server.services import services_of

if TYPE_CHECKING:
    from stepwell.server.services import Services


def openai_router(services: "Services") -> APIRouter:
    """All routes of OpenAI's API; each has its entry in the policy table."""
    router = APIRouter(prefix="/v1", dependencies=[Depends(_check_enabled)])
    _add_answers(router, services)
    _add_models(router, services)
    return router


def _check_enabled(request: Request) -> None:
    if not services_of(request).settings.openai_api:
        raise HTTPException(404, "OpenAI's API is turned off here (server setting openai_api).")


def _add_answers(router: APIRouter, services: "Services") -> None:
    @router.post("/chat/completions", **_answer_docs("create_chat_completion"))
    async def create_chat_completion(request: Request, access: SendAccessDep) -> Response:
        """Send the newest message of a chat completion to the agent that `model` names. The header
        X-Stepwell-Session names the session."""
        return await chat_completion(services, access.principal, request)

    @router.post("/responses", **_answer_docs("create_response"))
    async def responses(request: Request, access: SendAccessDep) -> Response:
        """Send the newest message of a response to the agent that `model` names;
        `previous_response_id` continues its session."""
        return await create_response(services, access.principal, request)


def _add_models(router: APIRouter, services: "Services") -> None:
    @router.get("/models", **_error_docs("list_models"))
    async def list_models(_access: AccessDep) -> Response:
        """List the agents as models."""
        names = services.agents.names
        return answer({"object": "list", "data": [_model(name) for name in names]})

    @router.get("/models/{model}", **_error_docs("read_model", 404))
    async def read_model(_access: AccessDep, model: str) -> Response:
        """Read one agent as a model."""
        return answer(_model(services.agents.get(model).name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "stepwell"}


def _answer_docs(operation_id: str) -> dict[str, Any]:
    documented = _error_docs(operation_id, *WITH_BODY, 404, 409, 429)
    content: dict[str, Any] = {"application/json": {}, "text/event-stream": {}}
    answered = {"description": "The answer, or its stream", "content": content}
    documented["responses"] = {200: answered, **documented["responses"]}
    return {**documented, "response_class": Response}


def _error_docs(operation_id: str, *codes: int) -> dict[str, Any]:
    """Return the OpenAPI arguments of a route whose errors have OpenAI's form."""
    documented = route_docs(operation_id, "openai", 400, *codes)
    schema = {"$ref": "#/components/schemas/OpenAiError"}
    for response in documented["responses"].values():
        response["content"] = {"application/json": {"schema": schema}}
    return documented
