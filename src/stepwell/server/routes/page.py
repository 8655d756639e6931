"""Serves the files of the page, with headers that forbid everything else.

The app passes the folder. A path must be the same after it is resolved, so that nothing outside of
the folder is ever read.
"""

import asyncio
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stepwell.server.routes.conventions import ServicesDep
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
"""The file types that are served; others do not exist."""

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
    # Cached, but revalidated each time, so that a new server never meets an old page.
    "Cache-Control": "no-cache",
}


@router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
async def page(request: Request, services: ServicesDep) -> Response:
    """Serve the page."""
    return await _serve_file(request, services, FIRST)


@router.api_route("/ui/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
async def page_file(request: Request, path: str, services: ServicesDep) -> Response:
    """Serve a file of the page."""
    return await _serve_file(request, services, path)


async def _serve_file(request: Request, services: Services, path: str) -> Response:
    folder = services.page if services.settings.page else None
    found = None if folder is None else await asyncio.to_thread(_read, folder, path)
    if found is None:
        raise HTTPException(404, "There is no such file.")
    content_type, content = found
    etag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
    headers = {**PAGE_HEADERS, "ETag": etag}
    if _has_etag(request, etag):
        return Response(status_code=304, headers=headers)
    headers |= {"Content-Type": content_type, "Content-Length": str(len(content))}
    return Response(b"" if request.method == "HEAD" else content, headers=headers)


def _read(folder: Path, path: str) -> tuple[str, bytes] | None:
    """Return type and content of a file of the page; None if there is none."""
    try:
        root = folder.resolve()
        file = (root / path).resolve()
        content_type = CONTENT_TYPES.get(file.suffix)
        is_inside = file.is_relative_to(root) and file.relative_to(root).as_posix() == path
        if content_type is None or not is_inside or not file.is_file():
            return None
        return content_type, file.read_bytes()
    except (OSError, ValueError):  # not a valid path: too long, or with invalid characters
        return None


def _has_etag(request: Request, etag: str) -> bool:
    known = [
        each.strip().removeprefix("W/")
        for line in request.headers.getlist("if-none-match")
        for each in line.split(",")
    ]
    return etag in known or "*" in known
