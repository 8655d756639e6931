"""The root of the values that states are stored with."""

from msgspec import Struct


class Kept(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is at its default is not written, and an unknown field is not read over."""
