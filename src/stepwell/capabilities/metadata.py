"""A scratchpad for the model: three tools that write, read and list the state's metadata.

They run one at a time and in call order, so that each sees what the calls before it wrote, also
within one response.
"""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct, json
from msgspec.structs import force_setattr

from stepwell.agent.metadata_keys import is_reserved
from stepwell.agent.plan import AgentPlan, several
from stepwell.errors import ConfigurationError
from stepwell.tools import BaseTool, ToolContext, ToolEffect, ToolFailure, ToolOutput
from stepwell.tools.formatting import json_value, shown

WRITE = "metadata_write"
READ = "metadata_read"
LIST = "metadata_list"
NOTHING_YET = f"nothing is stored yet; store something with {WRITE}"


class MetadataPolicy(Struct, frozen=True, kw_only=True):
    """What the model may keep in the state's metadata, and what it may see there.

    The values are plain metadata: an application reads them as ``state.metadata[key]``, and the
    model sees and may change what the application put there. So name in ``reserved_keys`` what
    other code trusts, and in ``hidden_keys`` what is not the model's business. The keys of other
    capabilities are always hidden.

    >>> MetadataPolicy(reserved_keys=["user_id"]).may_write("user_id")
    False
    """

    max_keys: int = 50
    """Counts the keys that the model can see."""
    max_value_size_bytes: int = 65_536
    """Of one value, as JSON in UTF-8."""
    max_key_length: int = 200
    reserved_keys: Collection[str] = frozenset()
    """The model can read these, but not write them."""
    hidden_keys: Collection[str] = frozenset()
    """The model can neither see nor write these."""

    def __post_init__(self) -> None:
        for name in ("max_keys", "max_value_size_bytes", "max_key_length"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"MetadataPolicy.{name} must be 1 or more, got {value!r}")
        for name in ("reserved_keys", "hidden_keys"):
            keys = several(getattr(self, name), f"MetadataPolicy.{name}")
            if not all(isinstance(key, str) for key in keys):
                raise ConfigurationError(f"MetadataPolicy.{name} wants names, got {keys!r:.80}")
            force_setattr(self, name, frozenset(keys))

    def may_see(self, key: str) -> bool:
        """Whether the model may know that there is such a key."""
        return not is_reserved(key) and key not in self.hidden_keys

    def may_write(self, key: str) -> bool:
        """Whether the model may set this key."""
        return self.may_see(key) and key not in self.reserved_keys

    def visible(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The part of the metadata that the model may see."""
        return {key: value for key, value in metadata.items() if self.may_see(key)}


class UseMetadataTools:
    """Gives the model ``metadata_write``, ``metadata_read`` and ``metadata_list``.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> model = ScriptedModel([call("metadata_write", key="lead", value={"name": "Ann"}), "Done."])
    >>> state = Agent(model, capabilities=[UseMetadataTools()]).run_sync("Note the lead.")
    >>> state.metadata["lead"]
    {'name': 'Ann'}
    """

    def __init__(self, policy: MetadataPolicy | None = None) -> None:
        self.policy = _checked(policy)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the three tools."""
        policy = self.policy
        return plan.with_tools(
            MetadataWriteTool(policy), MetadataReadTool(policy), MetadataListTool(policy)
        )


class MetadataWriteTool(BaseTool):
    """Stores a value under a key, if the policy allows it."""

    name = WRITE
    description = (
        "Store a value under a key, for later steps and for the application. A value that was "
        "stored under the same key before is replaced."
    )
    effect = ToolEffect.PURE
    parallel = False

    def __init__(self, policy: MetadataPolicy | None = None) -> None:
        self.policy = _checked(policy)
        super().__init__()

    async def __call__(
        self, key: str, value: Any, context: ToolContext
    ) -> ToolOutput | ToolFailure:
        """Store a value.

        Args:
            key: The name to find it by.
            value: Any JSON value: text, number, boolean, list, object or null.
        """
        try:
            stored, _ = shown(value)
        except (ValueError, RecursionError) as error:
            return ToolFailure(
                f"nothing was stored: the value can't be kept as JSON ({error}); make it plainer, "
                "and nest it less deeply"
            )
        key = str(shown(key)[0]).strip()
        size = len(json.encode(stored))
        problem = self._problem(key, size, context.state.metadata)
        if problem:
            return ToolFailure(f"nothing was stored: {problem}")
        said = f"Stored {key!r} ({_kind(stored)}, {size} bytes)."
        return ToolOutput(value=said, metadata={key: stored})

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
                f"them again: {_listed(keys)}"
            )
        return ""


class MetadataReadTool(BaseTool):
    """Reads what is stored under a key."""

    name = READ
    description = f"Read the value that is stored under a key; {LIST} tells which keys there are."
    effect = ToolEffect.PURE
    parallel = False

    def __init__(self, policy: MetadataPolicy | None = None) -> None:
        self.policy = _checked(policy)
        super().__init__()

    async def __call__(self, key: str, context: ToolContext) -> ToolOutput | ToolFailure:
        """Read a value.

        Args:
            key: The name it was stored under.
        """
        known = self.policy.visible(context.state.metadata)
        key = key.strip()
        if key in known:
            return ToolOutput(value=known[key])
        there_is = f"existing keys: {_listed(known)}" if known else NOTHING_YET
        return ToolFailure(f"there is no key {key!r:.200}; {there_is}")


class MetadataListTool(BaseTool):
    """Lists the keys, with the types of their values."""

    name = LIST
    description = "List the keys under which values are stored, with the types of the values."
    effect = ToolEffect.PURE
    parallel = False

    def __init__(self, policy: MetadataPolicy | None = None) -> None:
        self.policy = _checked(policy)
        super().__init__()

    async def __call__(self, context: ToolContext) -> dict[str, Any]:
        """List the keys."""
        known = self.policy.visible(context.state.metadata)
        found = {"count": len(known), "keys": {key: _kind(known[key]) for key in known}}
        return found if known else {**found, "hint": NOTHING_YET}


def _listed(keys: Mapping[str, Any]) -> str:
    return ", ".join(keys)


def _kind(value: Any) -> str:
    """The type of a value in the words of JSON."""
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


def _checked(policy: MetadataPolicy | None) -> MetadataPolicy:
    if policy is None:
        return MetadataPolicy()
    if not isinstance(policy, MetadataPolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"{policy!r:.80} is no MetadataPolicy; write MetadataPolicy(max_keys=50)"
        )
    return policy
