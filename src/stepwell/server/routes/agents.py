"""The registered agents."""

from fastapi import APIRouter
from starlette.responses import Response

from stepwell.server.routes.conventions import AccessDep, ServicesDep, answer, route_docs
from stepwell.server.routes.shapes import AgentList
from stepwell.server.views import agent_view

router = APIRouter(prefix="/agent")


@router.get("/agents", response_model=AgentList, **route_docs("list_agents", "agents"))
async def list_agents(_access: AccessDep, services: ServicesDep) -> Response:
    """List the registered agents with their descriptions and tools."""
    agents = services.agents
    default = agents.default
    items = [agent_view(agents.get(name), is_default=name == default) for name in agents.names]
    return answer({"items": items, "default": default})
