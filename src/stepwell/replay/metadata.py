"""Who wrote what into the metadata of a replayed step: its tools, which do not run, or the agent's
hooks, which do. Stored is only what both left behind.

What changed in a step is taken for the tools', until a hook that runs behind them writes it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from stepwell.hooks import HookContext, HookTrigger
from stepwell.replay.stored_execution import ReplaySource
from stepwell.state import AgentState

BEHIND_A_TOOL = frozenset(
    {
        *(HookTrigger.BEFORE_TOOL, HookTrigger.AFTER_TOOL, HookTrigger.AFTER_STEP),
        *(HookTrigger.ON_ERROR, HookTrigger.ON_STOP, HookTrigger.AFTER_EXECUTION),
    }
)
_BEHIND_THE_STEP = frozenset(
    {HookTrigger.ON_ERROR, HookTrigger.ON_STOP, HookTrigger.AFTER_EXECUTION}
)


class MetadataOfTools:
    """What tools are said to have written in the step under way."""

    def __init__(self, stored: ReplaySource) -> None:
        self._stored = stored
        self._number = 0
        self._originals: dict[str, Any] = {}
        """What each key was before it was given as a tool's."""
        self._written: dict[str, str] = {}
        """The keys that hooks wrote in this step, with the name of the hook."""
        self._of_hooks: set[str] = set()
        """Keys that a hook behind the tools wrote in any step, so that tools are not given them."""
        self._doubtful: dict[str, tuple[str, int]] = {}
        self._asked_again: dict[str, int] = {}
        """Hooks that ran twice in a step, with the number of the first one."""

    def begin(self, number: int) -> None:
        """Begin the step of that number."""
        self._number = number
        self._originals, self._written = {}, {}

    def tool_metadata(self, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a tool of the step wrote, as far as one can know when that is asked for: a call
        that ran beside others is finished after the hooks behind them."""
        return _LateToolMetadata(self, metadata)

    def current_tool_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same now."""
        changed = {
            key: value
            for key, value in self._after().items()
            if key not in self._of_hooks and metadata.get(key, UNSET) != value
        }
        self._note_original(changed, metadata)
        return changed

    def claim_for_hook(
        self, before: HookContext, after: HookContext, hook: str
    ) -> HookContext | None:
        """What a hook wrote is its own. Returns what to ask it again with, if it was shown as a
        tool's what it now turns out to write itself."""
        keys = _changed_keys(before, after)
        self._written.update(dict.fromkeys(keys, hook))
        if before.trigger not in BEHIND_A_TOOL:
            return None
        self._of_hooks.update(keys)
        shown = {key: self._originals[key] for key in keys if key in self._originals}
        if not shown:
            return None
        self._asked_again.setdefault(hook, self._number)
        return before.with_state(_with(before.state, shown))

    def choose(self, once: HookContext, again: HookContext) -> HookContext:
        """Of both answers the one that counts. Behind the step a tool may have written the key
        after all, and the hook once more."""
        keys = [key for key in _changed_keys(once, again) if key in self._originals]
        stored = self._after()
        now = again.state.metadata
        is_as_stored = all(now.get(key, UNSET) == stored.get(key, UNSET) for key in keys)
        if again.trigger in _BEHIND_THE_STEP and not is_as_stored:
            return once
        for key in keys:
            self._originals.pop(key)
            if is_as_stored:
                self._doubtful.pop(key, None)
        return again

    def settle(self, state: AgentState, *, with_tools: bool) -> AgentState:
        """The state at the end of the step, with what is stored where the hooks that ran left
        something else. What a hook wrote in a step without tools is its own, stored or not."""
        stored = self._after()
        if self._number not in self._stored.metadata:
            return state
        now, other = state.metadata, dict[str, Any]()
        for key in dict.fromkeys((*now, *stored)):
            value = stored.get(key, UNSET)
            if now.get(key, UNSET) == value:
                continue
            if key in self._written:
                if not with_tools:
                    continue
                self._doubtful.setdefault(key, (self._written[key], self._number))
            other[key] = value
        self._note_original(other, now)
        return _with(state, other) if other else state

    def notes(self) -> Iterable[str]:
        """What could not be distinguished, and what distinguishes the rest."""
        for hook, number in self._asked_again.items():
            yield (
                f"hook {hook!r} ran twice in step {number}: only then it was known that it, and no "
                "tool, writes into the metadata"
            )
        for key, (hook, number) in self._doubtful.items():
            yield (
                f"hook {hook!r} leaves another value under {key!r} in the metadata than step "
                f"{number} did; a tool may have written there too, so the stored one is taken"
            )

    def _after(self) -> Mapping[str, Any]:
        return self._stored.metadata.get(self._number, {})

    def _note_original(self, keys: Iterable[str], metadata: Mapping[str, Any]) -> None:
        for key in keys:
            self._originals.setdefault(key, metadata.get(key, UNSET))


class _LateToolMetadata(Mapping[str, Any]):
    def __init__(self, tools: MetadataOfTools, metadata: Mapping[str, Any]) -> None:
        self._tools = tools
        self._metadata = metadata

    def __getitem__(self, key: str) -> Any:
        return self._tools.current_tool_metadata(self._metadata)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools.current_tool_metadata(self._metadata))

    def __len__(self) -> int:
        return len(self._tools.current_tool_metadata(self._metadata))


def _changed_keys(before: HookContext, after: HookContext) -> list[str]:
    old, new = before.state.metadata, after.state.metadata
    if old is new:
        return []
    return [
        key for key in dict.fromkeys((*old, *new)) if old.get(key, UNSET) != new.get(key, UNSET)
    ]


def _with(state: AgentState, values: Mapping[str, Any]) -> AgentState:
    """With these values; UNSET takes a key away."""
    changed = {**state.metadata, **values}
    kept = {key: value for key, value in changed.items() if value is not UNSET}
    return replace(state, metadata=kept)
