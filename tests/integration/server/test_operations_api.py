"""Health, readiness, metrics and the OpenAPI document."""

from pathlib import Path

from msgspec.structs import replace

from stepwell.server.asgi import make_asgi
from stepwell.server.routes.shapes import HealthShape, ReadyShape
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.testing import FakeClock
from tests.integration.server.serving import Served, serving


def with_other(served: Served, services: Services) -> Served:
    return replace(served, services=services, app=make_asgi(services))


class NoStore:
    """A database that does not answer."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)

    async def read(self, _work: object) -> None:
        raise StoreUnavailableError("no route to db.internal")

    async def check_writable(self) -> None:
        raise StoreUnavailableError("no route to db.internal")


async def test_health_needs_nothing_and_nobody(served: Served) -> None:
    broken = with_other(served, replace(served.services, store=NoStore()))
    async with broken.client(None) as anybody:
        answer = await anybody.get("/health")

    HealthShape.model_validate(answer.json())
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


async def test_a_server_that_can_work_is_ready(served: Served) -> None:
    async with served.client(None) as anybody:
        answer = await anybody.get("/ready")

    ReadyShape.model_validate(answer.json())
    assert answer.status_code == 200
    checks = {"database": "ok", "worker": "ok: no work waits"}
    assert answer.json() == {"status": "ready", "checks": checks}


async def test_without_its_database_it_is_not_ready(served: Served) -> None:
    broken = with_other(served, replace(served.services, store=NoStore()))
    async with broken.client(None) as anybody:
        answer = await anybody.get("/ready")
        sessions = await broken.client().get("/agent/sessions")

    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "does not answer"}
    assert "db.internal" not in answer.text
    assert (sessions.status_code, sessions.json()["code"]) == (503, "store_unavailable")
    assert "db.internal" not in sessions.text


async def test_the_checks_of_the_app_count(served: Served) -> None:
    async def old_tables() -> str | None:
        return "tables are of an older version"

    lacking = with_other(served, replace(served.services, checks={"migrations": old_tables}))
    async with lacking.client(None) as anybody:
        answer = await anybody.get("/ready")

    assert answer.status_code == 503
    assert answer.json()["checks"]["migrations"] == "tables are of an older version"


async def test_work_that_nobody_takes_up_means_that_there_is_no_worker(folder: Path) -> None:
    clock = FakeClock()
    async with serving(folder, clock=clock) as served, served.client() as ada:
        await ada.post("/agent/messages", json={"content": "hello"})
        clock.advance(20)
        patient = await ada.get("/ready")
        clock.advance(20)
        alone = await ada.get("/ready")
        await served.work_off()
        helped = await ada.get("/ready")

    assert (patient.status_code, alone.status_code, helped.status_code) == (200, 503, 200)
    assert patient.json()["checks"]["worker"] == "ok"
    assert "worker" in alone.json()["checks"]["worker"]


async def test_metrics_are_for_administrators(served: Served) -> None:
    async with served.client(None) as anybody, served.client("ada") as ada:
        assert (await anybody.get("/metrics")).status_code == 401
        assert (await ada.get("/metrics")).status_code == 403


async def test_metrics_are_for_the_tenant_that_runs_the_server(folder: Path) -> None:
    async with (
        serving(folder) as served,
        served.client("root", admin=True) as root,
        served.client("root", admin=True, tenant="customer") as customer,
    ):
        assert (await root.get("/metrics")).status_code == 200
        refused = await customer.get("/metrics")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    settings = ServerSettings(metrics_tenant="us")
    async with (
        serving(folder, server=settings) as served,
        served.client("root", admin=True) as root,
        served.client("root", admin=True, tenant="us") as us,
    ):
        codes = [(await one.get("/metrics")).status_code for one in (root, us)]
    assert codes == [403, 200]


async def test_metrics_count_what_was_done(served: Served) -> None:
    async with served.client("ada") as ada, served.client("root", admin=True) as root:
        sent = (await ada.post("/agent/messages", json={"content": "hello"})).json()
        for _ in range(2):
            await ada.get(f"/agent/sessions/{sent['session']['id']}")
        await ada.get("/nowhere")
        await ada.request("BREW", "/agent/sessions")
        async with await served.services.feeds.subscribe(sent["session"]["id"], after=0):
            answer = await root.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    route = 'method="GET",route="/agent/sessions/{session_id}"'
    assert f'stepwell_http_requests_total{{{route},status="200"}} 2' in lines
    assert f"stepwell_http_request_seconds_count{{{route}}} 2" in lines
    assert 'stepwell_http_requests_total{method="GET",route="(none)",status="404"} 1' in lines
    assert any('method="OTHER"' in line and 'status="405"' in line for line in lines)
    assert 'stepwell_sends_total{result="new"} 1' in lines
    assert 'stepwell_executions{status="pending"} 1' in lines
    assert 'stepwell_executions{status="running"} 0' in lines
    assert "stepwell_followers 1" in lines
    assert "stepwell_followed_sessions 1" in lines
    assert sent["session"]["id"] not in answer.text


async def test_the_openapi_document_is_complete(served: Served) -> None:
    async with served.client(None) as anybody:
        document = (await anybody.get("/openapi.json")).json()

    ids: list[str] = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            ids.append(operation["operationId"])
            assert operation["tags"], where
            assert operation.get("summary"), where
            named = {each["name"] for each in operation.get("parameters", ())}
            for name in (part[1:-1] for part in path.split("/") if part.startswith("{")):
                assert name in named, where
            if path in ("/health", "/ready"):
                continue
            assert operation["security"], where
            for code in ("401", "403", "422", "500", "503"):
                content = operation["responses"][code]["content"]
                # OpenAI's clients read errors in OpenAI's own form.
                form = "json" if path.startswith("/v1/") else "problem+json"
                assert list(content) == [f"application/{form}"], where
    assert len(ids) == len(set(ids))
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert document["servers"] == [{"url": "/"}]


async def test_pages_that_load_scripts_from_elsewhere_are_not_served(served: Served) -> None:
    async with served.client() as ada:
        for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
            assert (await ada.get(path)).status_code == 404
