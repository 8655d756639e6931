"""Routes for operators: health, readiness, metrics, the OpenAPI document."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from stepwell.journal.status import ExecutionStatus
from stepwell.server.health import readiness
from stepwell.server.metrics import CONTENT_TYPE
from stepwell.server.routes.conventions import AccessDep, ServicesDep, answer, route_docs
from stepwell.server.routes.openapi import openapi_document
from stepwell.server.routes.shapes import HealthShape, ReadyShape

router = APIRouter()
_TAG = "operations"


@router.get("/health", response_model=HealthShape, operation_id="health", tags=[_TAG])
async def health() -> Response:
    """Whether the process responds."""
    return answer({"status": "ok"})


@router.get(
    "/ready",
    response_model=ReadyShape,
    operation_id="ready",
    tags=[_TAG],
    responses={503: {"model": ReadyShape, "description": "A check failed."}},
)
async def ready(services: ServicesDep) -> Response:
    """Whether the database accepts writes, its tables are current, and a worker is running."""
    checks = await readiness(services)
    is_failing = any(check.is_failing for check in checks.values())
    messages = {name: check.message for name, check in checks.items()}
    view = {"status": "not ready" if is_failing else "ready", "checks": messages}
    return answer(view, 503 if is_failing else 200)


@router.get(
    "/metrics",
    response_class=Response,
    **route_docs("metrics", _TAG),
)
async def metrics(_access: AccessDep, services: ServicesDep) -> Response:
    """The metrics of this process in Prometheus' text format."""
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
