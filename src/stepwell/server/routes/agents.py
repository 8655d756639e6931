"""The agents that sessions can be made with."""

from fastapi import APIRouter
from starlette.responses import Response

from stepwell.server.routes.documented import AccessDep, ServicesDep, answer, documented
from stepwell.server.routes.shapes import AgentList
from stepwell.server.views import agent_view

router = APIRouter(prefix="/agent")


@router.get("/agents", response_model=AgentList, **documented("list_agents", "agents"))
async def list_agents(_access: AccessDep, services: ServicesDep) -> Response:
    """The registered agents with what they are for and their tools."""
    agents = services.agents
    default = agents.default
    items = [agent_view(agents.get(name), is_default=name == default) for name in agents.names]
    return answer({"items": items, "default": default})
