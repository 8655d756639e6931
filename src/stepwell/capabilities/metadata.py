"""A scratchpad for the model: tools that write, read and list the state's metadata.

They run one at a time in call order, so that each call sees what earlier calls wrote, even within
one response.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct, json
from msgspec.structs import force_setattr

from stepwell.agent.metadata_keys import is_reserved
from stepwell.agent.plan import AgentPlan
from stepwell.parameters import check_integer, check_kind, check_texts
from stepwell.tools import BaseTool, ToolContext, ToolEffect, ToolFailure, ToolOutput
from stepwell.tools.result_text import format_result, json_value

WRITE = "metadata_write"
READ = "metadata_read"
LIST = "metadata_list"
EMPTY_HINT = f"nothing is stored yet; use {WRITE} to store a value"


class MetadataPolicy(Struct, frozen=True, kw_only=True):
    """What the model may store in the state's metadata, and what it may see there.

    The application and the model share the metadata: an application reads values as
    ``state.metadata[key]``, and the model can see and change what the application stored. List
    keys that other code trusts in ``reserved_keys``, and keys that the model must not see in
    ``hidden_keys``. The keys of other capabilities are always hidden.

    >>> MetadataPolicy(reserved_keys=["user_id"]).may_write("user_id")
    False
    """

    max_keys: int = 50
    """Limit of the keys that the model can see."""
    max_value_size_bytes: int = 65_536
    """Limit of one value as JSON in UTF-8."""
    max_key_length: int = 200
    reserved_keys: Collection[str] = frozenset()
    """The model can read these keys, but not write them."""
    hidden_keys: Collection[str] = frozenset()
    """The model can neither see nor write these keys."""

    def __post_init__(self) -> None:
        for name in ("max_keys", "max_value_size_bytes", "max_key_length"):
            check_integer(getattr(self, name), f"MetadataPolicy.{name}", least=1)
        for name in ("reserved_keys", "hidden_keys"):
            keys = check_texts(getattr(self, name), f"MetadataPolicy.{name}")
            force_setattr(self, name, frozenset(keys))

    def may_see(self, key: str) -> bool:
        """Return whether the model may see this key."""
        return not is_reserved(key) and key not in self.hidden_keys

    def may_write(self, key: str) -> bool:
        """Return whether the model may set this key."""
        return self.may_see(key) and key not in self.reserved_keys

    def visible(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of the metadata that the model may see."""
        return {key: value for key, value in metadata.items() if self.may_see(key)}


class UseMetadataTools:
    """Adds the tools ``metadata_write``, ``metadata_read`` and ``metadata_list``.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> model = ScriptedModel([call("metadata_write", key="lead", value={"name": "Ann"}), "Done."])
    >>> state = Agent(model, capabilities=[UseMetadataTools()]).run_sync("Note the lead.")
    >>> state.metadata["lead"]
    {'name': 'Ann'}
    """

    def __init__(self, policy: MetadataPolicy | None = None) -> None:
        self.policy = _policy_or_default(policy)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the three tools."""
        policy = self.policy
        return plan.with_tools(
            MetadataWriteTool(policy), MetadataReadTool(policy), MetadataListTool(policy)
        )


class MetadataTool(BaseTool):
    """A tool that works on the state's metadata within a policy."""

    effect = ToolEffect.PURE
    parallel = False

    def __init__(self, policy: MetadataPolicy | None = None) -> None:
        self.policy = _policy_or_default(policy)
        super().__init__()


class MetadataWriteTool(MetadataTool):
    """Stores a value under a key, if the policy allows it."""

    name = WRITE
    description = (
        "Store a value under a key, for later steps and for the application. Replaces an "
        "existing value."
    )

    async def __call__(
        self, key: str, value: Any, context: ToolContext
    ) -> ToolOutput | ToolFailure:
        """Store a value.

        Args:
            key: The name of the value.
            value: Any JSON value: text, number, boolean, list, object or null.
        """
        try:
            stored, _ = format_result(value)
        except (ValueError, RecursionError) as error:
            return ToolFailure(
                f"nothing was stored: the value can't be stored as JSON ({error}); simplify it and "
                "nest it less deeply"
            )
        key = str(format_result(key)[0]).strip()
        size = len(json.encode(stored))
        problem = self._problem(key, size, context.state.metadata)
        if problem:
            return ToolFailure(f"nothing was stored: {problem}")
        message = f"Stored {key!r} ({_kind(stored)}, {size} bytes)."
        return ToolOutput(value=message, metadata={key: stored})

    def _problem(self, key: str, size: int, metadata: Mapping[str, Any]) -> str:
        policy = self.policy
        if not key:
            return "the key is empty; give the value a name"
        if len(key) > policy.max_key_length:
            return (
                f"the key has {len(key)} characters, at most {policy.max_key_length} are allowed; "
                "choose a shorter one"
            )
        if not policy.may_write(key):
            return f"the key {key!r} is reserved; choose another one"
        if size > policy.max_value_size_bytes:
            return (
                f"the value for {key!r} has {size} bytes as JSON, at most "
                f"{policy.max_value_size_bytes} are allowed; shorten it or split it"
            )
        keys = policy.visible(metadata)
        if key not in keys and len(keys) >= policy.max_keys:
            return (
                f"there are {len(keys)} keys, at most {policy.max_keys} are allowed; use one of "
                f"them again: {', '.join(keys)}"
            )
        return ""


class MetadataReadTool(MetadataTool):
    """Reads the value stored under a key."""

    name = READ
    description = f"Read the value stored under a key. Use {LIST} to see which keys exist."

    async def __call__(self, key: str, context: ToolContext) -> ToolOutput | ToolFailure:
        """Read a value.

        Args:
            key: The name it was stored under.
        """
        known = self.policy.visible(context.state.metadata)
        key = key.strip()
        if key in known:
            return ToolOutput(value=known[key])
        hint = f"existing keys: {', '.join(known)}" if known else EMPTY_HINT
        return ToolFailure(f"there is no key {key!r:.200}; {hint}")


class MetadataListTool(MetadataTool):
    """Lists the keys with the types of their values."""

    name = LIST
    description = "List the stored keys with the types of their values."

    async def __call__(self, context: ToolContext) -> dict[str, Any]:
        """List the keys."""
        known = self.policy.visible(context.state.metadata)
        found = {"count": len(known), "keys": {key: _kind(known[key]) for key in known}}
        return found if known else {**found, "hint": EMPTY_HINT}


def _kind(value: Any) -> str:
    """Return the JSON type of a value."""
    match json_value(value):
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _policy_or_default(policy: MetadataPolicy | None) -> MetadataPolicy:
    return MetadataPolicy() if policy is None else check_kind(policy, "policy", MetadataPolicy)
