"""Who may do what: one table for every route and channel, and the guard that applies it.

Routes declare ``access: Annotated[Access, Depends(access)]`` and get the objects of their path,
loaded and authorized.
"""

from stepwell.server.auth.refusals import NotAllowedError, NotSignedInError
from stepwell.server.policy.check import check_policies, routes_of
from stepwell.server.policy.guard import (
    Access,
    Authorize,
    Guarded,
    access,
    may_follow,
    may_still_follow,
    require,
)
from stepwell.server.policy.table import (
    CHANNELS,
    POLICIES,
    Needs,
    Of,
    Policy,
    RouteKey,
    channel_policy,
)

__all__ = [
    "CHANNELS",
    "POLICIES",
    "Access",
    "Authorize",
    "Guarded",
    "Needs",
    "NotAllowedError",
    "NotSignedInError",
    "Of",
    "Policy",
    "RouteKey",
    "access",
    "channel_policy",
    "check_policies",
    "may_follow",
    "may_still_follow",
    "require",
    "routes_of",
]
