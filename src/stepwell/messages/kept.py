"""The root of the values that states are stored with."""

from msgspec import Struct


class Kept(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Omits fields at their defaults when written, and refuses unknown fields when read.

    The garbage collector does not look at these values: what they hold is JSON data and other such
    values, which cannot refer back to them. A subclass that holds objects of users says gc=True.
    """
