"""The page that browsers are given: its files, and the headers that keep everything else out.

The files lie in a folder that the app hands in. A path is resolved first and must still be the same
then, so that nothing outside of the folder is ever read.
"""

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stepwell.server.routes.documented import ServicesDep
from stepwell.server.services import Services

router = APIRouter()

FIRST = "index.html"
CONTENT_TYPES: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
"""What is served; a file that ends otherwise is not there."""

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": PAGE_POLICY,
    "X-DNS-Prefetch-Control": "off",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Kept, but asked about each time: a server that was updated never meets an old page.
    "Cache-Control": "no-cache",
}


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def page(request: Request, services: ServicesDep) -> Response:
    """The page itself."""
    return await _served(request, services, FIRST)


@router.api_route("/ui/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def page_file(request: Request, path: str, services: ServicesDep) -> Response:
    """What the page loads."""
    return await _served(request, services, path)


async def _served(request: Request, services: Services, path: str) -> Response:
    folder = services.page if services.settings.page else None
    found = None if folder is None else await asyncio.to_thread(_read, folder, path)
    if found is None:
        raise HTTPException(404, "There is no such file.")
    content_type, content = found
    etag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
    headers = {**PAGE_HEADERS, "ETag": etag}
    if _is_known(request, etag):
        return Response(status_code=304, headers=headers)
    headers |= {"Content-Type": content_type, "Content-Length": str(len(content))}
    return Response(b"" if request.method == "HEAD" else content, headers=headers)


def _read(folder: Path, path: str) -> tuple[str, bytes] | None:
    """The type and content of a file of the page; None if that path is none."""
    try:
        root = folder.resolve()
        file = (root / path).resolve()
        content_type = CONTENT_TYPES.get(file.suffix)
        is_inside = file.is_relative_to(root) and file.relative_to(root).as_posix() == path
        if content_type is None or not is_inside or not file.is_file():
            return None
        return content_type, file.read_bytes()
    except (OSError, ValueError):  # no path at all: too long, or with signs that names can't have
        return None


def _is_known(request: Request, etag: str) -> bool:
    known = [
        each.strip().removeprefix("W/")
        for line in request.headers.getlist("if-none-match")
        for each in line.split(",")
    ]
    return etag in known or "*" in known
