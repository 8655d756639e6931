"""One agent's part of an AG-UI stream: what is open, and the events that open and close it.

The translator keeps one speaker for the agent and one for each subagent.
"""

from typing import Any

from stepwell.messages import Message, Role
from stepwell.protocols.ag_ui.messages import arguments_text
from stepwell.protocols.call_ids import CallIds
from stepwell.protocols.client_stream import WireEvent


class Speaker:
    """Builds the events of one agent. It closes an open text before it opens another, as the
    protocol requires."""

    def __init__(self, subagent_run_id: str | None = None) -> None:
        self.run_id = subagent_run_id
        """The id of a subagent; None for the root agent."""
        self._tag: WireEvent = {}
        if subagent_run_id is not None:
            self._tag = {"subagentRunId": subagent_run_id}
        # A provider may give two agents of one run the same call ids.
        self.call_ids = CallIds("" if subagent_run_id is None else f"{subagent_run_id}:")
        self.message_ids: list[str] = []
        """Ids of the messages that a client has, in its order."""
        self.answer = ""
        """The answer of an agent that ended, or why it failed."""
        self.is_open = True
        self.step_number = 0
        self._known_ids: set[str] = set()
        self._calls: set[str] = set()
        self._answered: set[str] = set()
        self._results: dict[str, int] = {}
        self._spans: dict[str, int] = {}
        self._text: str | None = None
        self._thinking: str | None = None
        self._step: str | None = None

    def learn_messages(self, messages: list[Message]) -> None:
        """Note messages that the client has already."""
        self.call_ids = CallIds()
        self.call_ids.learn(messages)
        self.message_ids = [message.id for message in messages]
        self._known_ids = set(self.message_ids)
        for message in messages:
            self._calls.update(
                self.call_ids.of_call(call.id, message.id) for call in message.tool_calls
            )
            if (result := message.tool_result) is not None:
                self._answered.add(self.call_ids.newest(result.call_id))

    def replace_messages(self, message_ids: list[str]) -> None:
        """Note the client's list after a snapshot."""
        self.message_ids = message_ids
        self._known_ids = set(message_ids)

    def has_message(self, message_id: str) -> bool:
        """Whether a client has that message."""
        return message_id in self._known_ids

    # Steps

    def start_step(self, number: int) -> list[WireEvent]:
        """Open a step; one that was cut off is closed first."""
        closed = self.finish_step()
        self.step_number, self._step = number, f"step {number}"
        return [*closed, self._event("STEP_STARTED", stepName=self._step)]

    def finish_step(self) -> list[WireEvent]:
        """Close the open step and the open text in it."""
        closed = self.close_text()
        if self._step is not None:
            closed.append(self._event("STEP_FINISHED", stepName=self._step))
            self._step = None
        return closed

    # Text and reasoning

    def say(self, message_id: str, delta: str, role: Role = Role.ASSISTANT) -> list[WireEvent]:
        """Add a piece of text; the first one opens the message."""
        events = [] if self._text == message_id else self.close_text()
        if self._text is None:
            self._text = message_id
            self._note(message_id)
            events.append(self._event("TEXT_MESSAGE_START", messageId=message_id, role=role.value))
        if delta:
            events.append(self._event("TEXT_MESSAGE_CONTENT", messageId=message_id, delta=delta))
        return events

    def think(self, message_id: str, delta: str) -> list[WireEvent]:
        """Add a piece of reasoning, before or between the texts of that message."""
        if not delta:
            return []
        events: list[WireEvent] = []
        if self._thinking is None:
            events = self.close_text()
            span = self._spans[message_id] = self._spans.get(message_id, 0) + 1
            self._thinking = f"{message_id}:thinking:{span}"
            events.append(self._event("REASONING_START", messageId=self._thinking))
            events.append(
                self._event("REASONING_MESSAGE_START", messageId=self._thinking, role="reasoning")
            )
        content = self._event("REASONING_MESSAGE_CONTENT", messageId=self._thinking, delta=delta)
        return [*events, content]

    def close_text(self) -> list[WireEvent]:
        """Close the text or the reasoning that is open."""
        events: list[WireEvent] = []
        if self._text is not None:
            events.append(self._event("TEXT_MESSAGE_END", messageId=self._text))
        if self._thinking is not None:
            events.append(self._event("REASONING_MESSAGE_END", messageId=self._thinking))
            events.append(self._event("REASONING_END", messageId=self._thinking))
        self._text = self._thinking = None
        return events

    # Tool calls

    def call(self, tool: str, call_id: str, message_id: str, arguments: Any) -> list[WireEvent]:
        """Add a call with its arguments; nothing if the client has it."""
        name = self.call_ids.of_call(call_id, message_id)
        if name in self._calls:
            return []
        self._calls.add(name)
        self._note(message_id)
        return [
            *self.close_text(),
            self._event(
                "TOOL_CALL_START",
                toolCallId=name,
                toolCallName=tool,
                parentMessageId=message_id,
            ),
            self._event("TOOL_CALL_ARGS", toolCallId=name, delta=arguments_text(arguments)),
            self._event("TOOL_CALL_END", toolCallId=name),
        ]

    def finish_call(
        self, call_id: str, content: str, prefix: str, metadata: WireEvent | None = None
    ) -> list[WireEvent]:
        """Add the result of a call, under the next id of its step; nothing if it has one.

        Calls of one response end in any order; the history has their results in the order of the
        calls. Ids in the order of arrival let a client's list grow in the order of the history; the
        snapshot at the end gives each result its own id.
        """
        name = self.call_ids.newest(call_id)
        if name in self._answered:
            return []
        self._answered.add(name)
        number = self._results[prefix] = self._results.get(prefix, 0) + 1
        message_id = f"{prefix}:{number}"
        self._note(message_id)
        fields: WireEvent = {"messageId": message_id, "toolCallId": name, "content": content}
        if metadata is not None:
            fields["metadata"] = metadata
        return [self._event("TOOL_CALL_RESULT", **fields, role="tool")]

    def custom_event(self, name: str, value: Any) -> WireEvent:
        """Return an event that AG-UI does not define."""
        return self._event("CUSTOM", name=name, value=value)

    def _note(self, message_id: str) -> None:
        if message_id not in self._known_ids:
            self._known_ids.add(message_id)
            self.message_ids.append(message_id)

    def _event(self, kind: str, **fields: Any) -> WireEvent:
        return {"type": kind, **self._tag, **fields}
