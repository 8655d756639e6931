"""Text and JSON as every room treats them: one policy for texts that are too long and one for half
characters. ``hidden_characters`` is imported on its own, by what writes to a terminal."""

from stepwell.text.characters import HALF_CHARACTER, is_encodable, replace_half_characters
from stepwell.text.json_data import json_bytes, map_json, walk_json
from stepwell.text.truncation import (
    DOTS,
    join_ends,
    truncate,
    truncate_after,
    truncate_middle,
    truncate_with_note,
)

__all__ = [
    "DOTS",
    "HALF_CHARACTER",
    "is_encodable",
    "join_ends",
    "json_bytes",
    "map_json",
    "replace_half_characters",
    "truncate",
    "truncate_after",
    "truncate_middle",
    "truncate_with_note",
    "walk_json",
]
