"""API keys: create, list, revoke."""

from datetime import timedelta

from fastapi import APIRouter
from starlette.responses import Response

from stepwell.server.auth.keys import require_keys_accepted
from stepwell.server.bodies import KeyBody
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    SendAccessDep,
    ServicesDep,
    answer,
    route_docs,
)
from stepwell.server.routes.shapes import KeyList, KeyShape, NewKeyShape
from stepwell.server.views import key_view

router = APIRouter(prefix="/agent")
_TAG = "keys"


@router.post(
    "/keys",
    status_code=201,
    response_model=NewKeyShape,
    **route_docs("create_key", _TAG, *WITH_BODY, 409, 429),
)
async def create_key(body: KeyBody, access: SendAccessDep, services: ServicesDep) -> Response:
    """Create a key of one's own. Only this response has its secret. A principal that signed in with
    a key can't create one unless it is an administrator's; nor can a server that accepts no
    keys."""
    require_keys_accepted(services.authenticate)
    days = body.expires_in_days
    key, secret = await services.keys.create(
        access.principal,
        body.name,
        user_id=body.user_id,
        is_admin=body.is_admin,
        roles=body.roles,
        expires_at=None if days is None else services.clock.now() + timedelta(days=days),
    )
    return answer({**key_view(key), "secret": secret}, 201)


@router.get("/keys", response_model=KeyList, **route_docs("list_keys", _TAG))
async def list_keys(access: AccessDep, services: ServicesDep) -> Response:
    """List one's own keys, or for administrators those of the tenant, without secrets."""
    who = access.principal
    whose = None if who.is_admin else who.user_id
    keys = await services.keys.list_keys(who.tenant_id, user_id=whose)
    return answer({"items": [key_view(key) for key in keys]})


@router.delete(
    "/keys/{key_id}", response_model=KeyShape, **route_docs("revoke_key", _TAG, 404, 429)
)
async def revoke_key(access: SendAccessDep, services: ServicesDep) -> Response:
    """Revoke a key, and close the streams that were opened with it."""
    assert access.key is not None, "the policy of this route loads the key"
    key = await services.keys.revoke(access.key.id, tenant_id=access.principal.tenant_id)
    return answer(key_view(key))
