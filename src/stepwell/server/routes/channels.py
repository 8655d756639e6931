"""Signs private channels for clients of the Pusher protocol."""

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from stepwell.server.bodies import ChannelBody
from stepwell.server.live.channel_auth import authorize_channel
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    ServicesDep,
    answer,
    route_docs,
)
from stepwell.server.routes.shapes import ChannelShape
from stepwell.sessions.errors import RefusedError

router = APIRouter()
_TAG = "channels"
_BODY = {"schema": {"$ref": "#/components/schemas/ChannelBody"}}
_DOCUMENTED: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": _BODY, "application/x-www-form-urlencoded": _BODY},
    }
}


async def channel_body(request: Request, _access: AccessDep) -> ChannelBody:
    """Parse the body, as JSON or as the form that Pusher clients send."""
    raw = await request.body()
    try:
        if request.headers.get("content-type", "").startswith("application/x-www-form"):
            fields = parse_qsl(raw.decode(), max_num_fields=10, errors="strict")
            return ChannelBody.model_validate(dict(fields))
        return ChannelBody.model_validate_json(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**each, "loc": ("body", *each["loc"])} for each in found]
        ) from None
    except ValueError:
        raise RefusedError("the body is not a form", code="bad_form") from None


ChannelDep = Annotated[ChannelBody, Depends(channel_body)]


@router.post(
    "/broadcasting/auth",
    response_model=ChannelShape,
    **route_docs("join_channel", _TAG, *WITH_BODY, 404),
    openapi_extra=_DOCUMENTED,
)
async def join_channel(body: ChannelDep, access: AccessDep, services: ServicesDep) -> Response:
    """Sign a private channel for a socket, at the default address of Laravel Echo."""
    signed = await authorize_channel(services, access.principal, body.socket_id, body.channel_name)
    return answer({"auth": signed.auth, "channel_data": signed.channel_data})
