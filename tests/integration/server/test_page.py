"""The page: its files, their headers, and nothing else of the package or the machine."""

from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from stepwell.app import AgentApp
from stepwell.app.config import AuthConfig, AuthMode, Config
from stepwell.server.settings import ServerSettings
from tests.integration.server.auth.asking import ask
from tests.integration.server.serving import APP_SECRET, PAGE, Served, agents, listening, serving

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-dns-prefetch-control": "off",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
TYPES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "deep/er/main.js": "text/javascript; charset=utf-8",
    "mark.svg": "image/svg+xml",
    "vendor/LICENSES.txt": "text/plain; charset=utf-8",
    "notes.md": "text/plain; charset=utf-8",
    "app.webmanifest": "application/manifest+json",
}
NOT_SERVED = (
    "",
    ".",
    "vendor",
    "vendor/",
    "__init__.py",
    "missing.js",
    "index.html/",
    "index.html/x.js",
    "deep//er/main.js",
    "INDEX.HTML",
    "secret.env",
    "noending",
    "../secret.txt",
    "..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "vendor/../../secret.txt",
    "vendor/..%2f..%2fsecret.txt",
    "link.txt",
    "linked/secret.txt",
    "/etc/hostname.txt",
    "%2f%2fetc/hostname.txt",
    "index.html%00",
    "%00.js",
    "%ff.js",
    "a" * 300 + ".js",
    "a/" * 3000 + "b.js",
    "..\\secret.txt",
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with every kind of file, and things beside it that are nobody's business."""
    root = tmp_path / "ui"
    for name in TYPES:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"content of {name}: Größe", encoding="utf-8")
    for name in ("__init__.py", "secret.env", "noending"):
        (root / name).write_text("not for browsers")
    outside = tmp_path / "outside"
    outside.mkdir()
    for secret in (tmp_path / "secret.txt", outside / "secret.txt"):
        secret.write_text("not for browsers")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "linked").symlink_to(outside)
    return root


async def test_every_kind_of_file_comes_with_its_type_and_headers(folder: Path, page: Path) -> None:
    async with serving(folder, page=page) as served, served.client(user=None) as nobody:
        for name, type in TYPES.items():
            answer = await nobody.get(f"/ui/{name}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, type)
            assert answer.content == (page / name).read_bytes()
            assert {key: answer.headers[key] for key in HEADERS} == HEADERS
        first = await nobody.get("/")
        assert first.content == (page / "index.html").read_bytes()
        assert first.headers["content-type"] == TYPES["index.html"]
        assert {key: first.headers[key] for key in HEADERS} == HEADERS


async def test_nothing_else_is_served(folder: Path, page: Path) -> None:
    async with serving(folder, page=page) as served, served.client(user=None) as nobody:
        for path in NOT_SERVED:
            answer = await nobody.get(f"/ui/{path}")
            assert answer.status_code == 404, path
            assert "not for browsers" not in answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            # What is no page keeps the headers of the API.
            assert answer.headers["content-security-policy"].startswith("default-src 'none'; frame")


async def test_a_raw_path_with_dots_does_not_leave_the_folder(folder: Path, page: Path) -> None:
    """As no client library would send it."""
    async with serving(folder, page=page) as served:
        for path in (
            "../secret.txt",
            "vendor/../../secret.txt",
            f"/{page.parent}/secret.txt",
            "vendor/../style.css",
            "./style.css",
        ):
            answer = await ask(served.app, "GET", f"/ui/{path}", {})
            assert answer.status == 404, path


async def test_a_file_that_is_known_is_not_sent_again(folder: Path, page: Path) -> None:
    async with serving(folder, page=page) as served, served.client(user=None) as nobody:
        etag = (await nobody.get("/ui/style.css")).headers["etag"]
        for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
            again = await nobody.get("/ui/style.css", headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert (again.headers["etag"], again.headers["cache-control"]) == (etag, "no-cache")
        for unknown in ('"other"', etag.strip('"'), ""):
            whole = await nobody.get("/ui/style.css", headers={"If-None-Match": unknown})
            assert whole.status_code == 200
        (page / "style.css").write_text("changed")
        changed = await nobody.get("/ui/style.css", headers={"If-None-Match": etag})
        assert (changed.status_code, changed.text) == (200, "changed")
        assert changed.headers["etag"] != etag


async def test_head_says_what_get_would(folder: Path, page: Path) -> None:
    async with (
        serving(folder, page=page) as served,
        listening(served, works=False) as address,
        address.client(user=None) as nobody,
    ):
        for path in ("/", "/ui/deep/er/main.js"):
            whole, head = await nobody.get(path), await nobody.head(path)
            assert (head.status_code, head.content) == (200, b"")
            for name in ("content-type", "content-length", "etag", *HEADERS):
                assert head.headers[name] == whole.headers[name]
        assert (await nobody.head("/ui/missing.js")).status_code == 404
        assert (await nobody.post("/")).status_code == 405


@pytest.mark.parametrize("why", ["the setting", "no folder"])
async def test_there_may_be_no_page(folder: Path, page: Path, why: str) -> None:
    settings = ServerSettings(app_secret=APP_SECRET, page=why != "the setting")
    given = page if why == "the setting" else None
    async with serving(folder, server=settings, page=given) as served, served.client() as ada:
        for path in ("/", "/ui/index.html"):
            assert (await ada.get(path)).status_code == 404
        assert (await ada.get("/agent/agents")).status_code == 200


async def test_the_page_is_public_and_the_api_below_it_is_not(served: Served) -> None:
    async with served.client(user=None) as nobody:
        assert (await nobody.get("/")).status_code == 200
        refused = await nobody.get("/agent/sessions")
        assert refused.status_code == 401
        assert refused.json()["code"] == "not_signed_in"
        assert refused.headers["cache-control"] == "no-store"


async def test_the_page_works_below_a_path_of_another_app(folder: Path, page: Path) -> None:
    async with serving(folder, page=page) as served:
        host = FastAPI()
        host.mount("/ai", served.app)
        transport = httpx2.ASGITransport(app=host)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as nobody:
            first = await nobody.get("/ai", follow_redirects=True)
            # With the slash at its end, by which the page finds all else.
            assert str(first.url).endswith("/ai/")
            assert first.content == (page / "index.html").read_bytes()
            assert first.headers["content-security-policy"] == POLICY
            assert (await nobody.get("/ai/ui/style.css")).status_code == 200
            assert (await nobody.get("/ai/ui/../../secret.txt")).status_code == 404
            assert (await nobody.get("/ui/style.css")).status_code == 404


async def test_the_page_that_comes_with_stepwell_is_served_as_it_is(served: Served) -> None:
    async with served.client(user=None) as nobody:
        assert (await nobody.get("/")).content == (PAGE / "index.html").read_bytes()
        for file in PAGE.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".py":
                answer = await nobody.get(f"/ui/{file.relative_to(PAGE).as_posix()}")
                assert answer.content == file.read_bytes(), file


@pytest.mark.parametrize("mode", [AuthMode.DEV, AuthMode.KEYS])
@pytest.mark.parametrize("path", ["", "/ai"])
async def test_an_application_serves_the_page_wherever_it_is(
    tmp_path: Path, mode: AuthMode, path: str
) -> None:
    config = Config(db=f"sqlite:///{tmp_path}/a.db", worker=False, auth=AuthConfig(mode=mode))
    app = AgentApp(agents()).use_config(config)
    host = FastAPI()
    host.mount(path, app)
    # As the browser of a person on this machine; another one only is given the page.
    transport = httpx2.ASGITransport(app=host, client=("127.0.0.1", 5000))
    async with (
        app.running(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as browser,
    ):
        first = await browser.get(f"{path}/")
        script = await browser.get(f"{path}/ui/message_list.js")
        api = await browser.get(f"{path}/agent/sessions")

    assert first.content == (PAGE / "index.html").read_bytes()
    assert script.status_code == 200
    assert api.status_code == (200 if mode is AuthMode.DEV else 401)
    if mode is AuthMode.KEYS:
        assert api.headers["content-type"] == "application/problem+json"
