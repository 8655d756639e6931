"""The OpenAPI document: what FastAPI generates, and what it can't know."""

import re
from collections.abc import Iterator
from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from stepwell.server.bodies import ChannelBody
from stepwell.server.routes.shapes import OpenAiError, Problem

_REFERENCE = "#/components/schemas/{model}"
_PUBLIC = ("/health", "/ready")
_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`sw_...`) or a token of the application's own issuer.",
    },
    "api_key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
_METHODS = ("get", "post", "put", "patch", "delete")


def openapi_document(app: FastAPI, root_path: str) -> dict[str, Any]:
    """Return the document for an app that is mounted at that path."""
    document = cast("dict[str, Any] | None", getattr(app.state, "openapi", None))
    if document is None:
        document = app.state.openapi = _build_document(app)
    return {**document, "servers": [{"url": root_path or "/"}]}


def _build_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
    )
    components: dict[str, Any] = document.setdefault("components", {})
    schemas: dict[str, Any] = components.setdefault("schemas", {})
    for model in (Problem, OpenAiError, ChannelBody):
        schemas.update(_schemas_of(model))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = _SCHEMES
    for path, operation in _operations(document):
        _name_path_parameters(path, operation)
        if path not in _PUBLIC:
            operation["security"] = [{"bearer": []}, {"api_key": []}]
    return document


def _schemas_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template=_REFERENCE)
    return {**schema.pop("$defs", {}), model.__name__: schema}


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    paths = cast("dict[str, dict[str, Any]]", document["paths"])
    for path, methods in paths.items():
        for method, operation in methods.items():
            if method in _METHODS:
                yield path, cast("dict[str, Any]", operation)


def _name_path_parameters(path: str, operation: dict[str, Any]) -> None:
    """Add path parameters, which only the guard reads, so FastAPI does not know them."""
    parameters: list[dict[str, Any]] = operation.setdefault("parameters", [])
    known = {each["name"] for each in parameters if each["in"] == "path"}
    for name in re.findall(r"{(\w+)}", path):
        if name not in known:
            schema = {"type": "string", "minLength": 1, "maxLength": 64}
            parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    if not parameters:
        del operation["parameters"]
