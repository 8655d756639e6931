"""For those who run the server: health, readiness, metrics, the OpenAPI document."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from stepwell.journal.status import ExecutionStatus
from stepwell.server.health import readiness
from stepwell.server.metrics import CONTENT_TYPE
from stepwell.server.routes.documented import AccessDep, ServicesDep, answer, documented
from stepwell.server.routes.openapi import openapi_document
from stepwell.server.routes.shapes import HealthShape, ReadyShape

router = APIRouter()
_TAG = "operations"


@router.get("/health", response_model=HealthShape, operation_id="health", tags=[_TAG])
async def health() -> Response:
    """That the process answers."""
    return answer({"status": "ok"})


@router.get(
    "/ready",
    response_model=ReadyShape,
    operation_id="ready",
    tags=[_TAG],
    responses={503: {"model": ReadyShape, "description": "Something is lacking."}},
)
async def ready(services: ServicesDep) -> Response:
    """Whether the database takes writes, its tables are current, and work is taken up."""
    checks = await readiness(services)
    lacks = any(check.lacks for check in checks.values())
    said = {name: check.says for name, check in checks.items()}
    view = {"status": "not ready" if lacks else "ready", "checks": said}
    return answer(view, 503 if lacks else 200)


@router.get(
    "/metrics",
    response_class=Response,
    **documented("metrics", _TAG),
)
async def metrics(_access: AccessDep, services: ServicesDep) -> Response:
    """What this process counts, as Prometheus reads it."""
    counts = await services.store.read(lambda tx: tx.count_by_status())
    for status in (status for status in ExecutionStatus if not status.is_terminal):
        services.metrics.executions.set(counts.get(status, 0), status=status.value)
    services.metrics.followed.set(services.feeds.followed)
    services.metrics.followers.set(services.feeds.following)
    return Response(services.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The OpenAPI document; its server is where this app is mounted."""
    return answer(openapi_document(request.app, request.scope.get("root_path", "")))
