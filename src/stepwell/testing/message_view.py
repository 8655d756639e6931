"""One execution as messages to show. Used by the message list alone."""

import math
from typing import cast

from stepwell.journal.envelope import EnvelopeType
from stepwell.testing.message_fold import (
    TERMINAL,
    Fold,
    Json,
    Run,
    Text,
    is_count,
    is_name,
    is_time,
    mappings_in,
    place,
    text_of,
)

DEEPEST = 50
"""Subagents of subagents are shown so many levels deep."""

BEGINNINGS = (EnvelopeType.STEP_STARTED, EnvelopeType.TOOL_STARTED)


class View:
    """The messages and the status of an execution. One that is over, as others know, shows no
    status and waits for nothing."""

    def __init__(
        self, fold: Fold, run: Run, is_over: bool, hidden: frozenset[str], depth: int = 0
    ) -> None:
        self.shown: list[Json] = []
        self.word: str = "processing"
        self._run = run
        self._hidden = hidden
        self._told: Json = {}
        self._step = 0
        self._blocks: dict[str, Json] = {}
        self._begun_in: dict[str, int] = {}
        self._waiting: set[str] = set()
        self._placed: set[str] = set()
        self._first_in: dict[str, int] = {}
        self._resumable: set[str] = set()
        self._starts = run.beginnings()
        self._depth = depth
        self._children: list[tuple[Run, Json]] = []
        self._read(fold)
        self._end(fold, is_over)

    def _end(self, fold: Fold, is_over: bool) -> None:
        if is_over:
            self._give_up_before(math.inf)
            self._stop_waiting("unknown")
        if self.word == "completed":
            self._show_answer()
        content = "" if is_over else _status_text(self.word, self._told, self._step)
        if content:
            id, is_error = f"{self._run.id}:status", self.word == "failed"
            self.shown.append(new_status(id, content, error=is_error, folded=False))
        for child, block in self._children if self._depth < DEEPEST else ():
            is_done = block["state"] not in {"running", "waiting"}
            view = View(fold, child, is_done, frozenset(), self._depth + 1)
            block["children"] += view.shown

    def _read(self, fold: Fold) -> None:
        """What happened, in order, with texts and subagents where they began."""
        run = self._run
        happened: list[tuple[Json, Text | Run | None]] = [(entry, None) for entry in run.entries]
        texts = (text.since(self._starts.get(step)) for step, text in run.texts.items())
        happened += [(text.first, text) for text in texts if text is not None and text.first]
        happened += [(child.first, child) for child in fold.children_of(run.id)]
        for entry, what in sorted(happened, key=lambda one: place(one[0])):
            if isinstance(what, Run):
                call_id = text_of(entry["payload"].get("parent_tool_call_id")) or what.id
                if call_id not in self._blocks:
                    self._begin(call_id, {})
                self._children.append((what, self._blocks[call_id]))
                continue
            if is_count(entry["payload"].get("step_number")):
                self._step = entry["payload"]["step_number"]
            if what is None:
                if self._starts.get(self._step) is entry:
                    self._drop(self._step)
                self._read_entry(entry["type"], entry["payload"])
                continue
            self._told, self.word = {}, "processing"
            text = what.assembled()
            self._show_text(text.content, self._step, not text.is_whole)

    def _read_entry(self, kind: str, payload: Json) -> None:
        if kind in BEGINNINGS:
            self._told, self.word = {}, "processing"
        match kind:
            case EnvelopeType.STATUS:
                self._told, self.word = payload, payload["status"]
                if self.word == "processing":
                    self._stop_waiting("done")
                else:
                    self._give_up_before(math.inf)
                if self.word in TERMINAL:
                    self._stop_waiting("unknown")
                if self.word == "paused" and not self._waiting:
                    # Older envelopes do not say which of its calls a step waits for.
                    first_in = self._first_in.items()
                    self._resumable |= {id for id, first in first_in if first == self._step}
            case EnvelopeType.STEP_STARTED:
                self._give_up_before(self._step)
                self._stop_waiting("done")
            case EnvelopeType.STEP_COMPLETED:
                self._give_up_before(self._step + 1)
            case EnvelopeType.TOOL_STARTED:
                self._forget_reused(payload["tool_call_id"])
                self._begin(payload["tool_call_id"], payload)["state"] = "running"
            case EnvelopeType.TOOL_COMPLETED:
                self._complete(payload["tool_call_id"], payload)
            case _:
                pass

    def _drop(self, step: int) -> None:
        """What an earlier attempt did in a step that begins anew."""
        for id in [id for id, first in self._first_in.items() if first == step]:
            block = self._blocks.pop(id)
            del self._first_in[id]
            self._begun_in.pop(id, None)
            self._waiting.discard(id)
            if id in self._placed:
                self._placed.discard(id)
                self.shown = [one for one in self.shown if one is not block]

    def _complete(self, id: str, payload: Json) -> None:
        content = text_of(payload.get("error")) or text_of(payload.get("result_summary"))
        is_pending = payload.get("outcome") == "pending"
        block = self._begin(id, payload)
        is_error = not is_pending and payload.get("success") is not True
        settle(block, content, is_error, payload)
        del self._begun_in[id]
        if is_pending:
            block["state"] = "waiting"
            self._waiting.add(id)

    def _stop_waiting(self, state: str) -> None:
        for id in self._waiting:
            self._blocks[id]["state"] = state
        self._resumable |= self._waiting
        self._waiting.clear()

    def _forget_reused(self, id: str) -> None:
        """A model may use the id of a call of an earlier step again: that is another call, unless
        it waited."""
        is_open = id in self._begun_in or id in self._waiting or id in self._resumable
        if not is_open and self._first_in.get(id, self._step) < self._step:
            del self._blocks[id], self._first_in[id]
            self._placed.discard(id)

    def _show_text(self, content: str, step: int, incomplete: bool) -> None:
        if content or incomplete:
            text = new_text(f"{self._run.id}:{step}", content, incomplete)
            if f"{self._run.id}:{step}" not in self._hidden:
                self.shown.append(text)

    def _begin(self, id: str, payload: Json) -> Json:
        if id not in self._blocks:
            self._blocks[id] = new_block(id, "", "", "running", self._run.id, self._step)
        block = self._blocks[id]
        self._first_in.setdefault(id, self._step)
        if id not in self._placed and f"{self._run.id}:{self._step}" not in self._hidden:
            self._placed.add(id)
            self.shown.append(block)
        self._waiting.discard(id)
        self._resumable.discard(id)
        self._begun_in[id] = self._step
        block["name"] = block["name"] or text_of(payload.get("tool_name"))
        block["summary"] = block["summary"] or text_of(payload.get("args_summary"))
        return block

    def _give_up_before(self, end: float) -> None:
        for id, step in [*self._begun_in.items()]:
            if step < end:
                self._blocks[id]["state"] = "unknown"
                del self._begun_in[id]

    def _show_answer(self) -> None:
        """The last status tells the answer, for those who got no chunks or not all of them."""
        answer, step = self._told.get("last_response"), self._told.get("step_count")
        if not is_name(answer) or not is_count(step):
            return
        wanted = ("assistant", f"{self._run.id}:{step}")
        streamed = [text for text in self.shown if (text["role"], text["id"]) == wanted]
        if not streamed:
            self._show_text(cast("str", answer), cast("int", step), False)
        elif streamed[0]["incomplete"]:
            streamed[0].update(content=answer, incomplete=False)


def _status_text(word: str, told: Json, step: int) -> str:
    if word in {"idle", "completed"}:
        return ""
    if word == "processing":
        waits = text_of(told.get("reason"))  # such as for a provider that has too much to do
        work = f"Working: step {step}" if step else "Working"
        return f"{work}; {waits}" if waits else work
    waits = [
        f"Waiting for {'an answer' if kind == 'question' else text_of(kind)}: {text_of(prompt)}"
        for asked in (mappings_in(told.get("waits_for")) if word == "paused" else [])
        for kind, prompt in [(asked.get("kind"), asked.get("prompt"))]
    ]
    why = text_of(told.get("error_message")) or text_of(told.get("reason"))
    return "\n".join(waits) or word.capitalize() + (f": {why}" if why else "")


def new_text(id: str, content: str, incomplete: bool) -> Json:
    """What the assistant said."""
    return {"id": id, "role": "assistant", "content": content, "incomplete": incomplete}


def new_block(
    id: str, name: str, summary: str, state: str, execution: str, step: int | None
) -> Json:
    """A tool call, without a result yet."""
    block = {"id": id, "role": "tool", "name": name, "summary": summary, "content": ""}
    block |= {"error": False, "state": state, "execution": execution, "step": step}
    block |= {"duration_ms": None}
    return {**block, "folded": True, "children": []}


def new_status(id: str, content: str, *, error: bool, folded: bool) -> Json:
    """Where an execution stands, or what the application tells."""
    return {"id": id, "role": "status", "content": content, "error": error, "folded": folded}


def settle(block: Json, content: str, is_error: bool, told: Json) -> None:
    """The call has its result; one that was not allowed is no failure of the tool."""
    state = "blocked" if told.get("outcome") == "blocked" else "failed"
    block.update(content=content, error=is_error, state=state if is_error else "done")
    duration = told.get("duration_ms")
    block["duration_ms"] = duration if is_time(duration) else None
