"""What is wrong with the event logs of sessions, and with what subscribers saw of them."""

from chaos.evidence import Evidence, SubscriberLog
from stepwell.sessions.records import MessageRole


class LogFaults:
    """The journals have no holes, and every subscriber saw exactly what is in them. The text that
    was streamed to it of an execution's last step is the stored answer."""

    def __init__(self, evidence: Evidence) -> None:
        self.gaps: list[str] = []
        self.duplicates: list[str] = []
        self.disorder: list[str] = []
        self.texts: list[str] = []
        self._true = {
            session: [(event.seq, event.id) for event in events]
            for session, events in evidence.events.items()
        }
        for session, events in self._true.items():
            if [seq for seq, _ in events] != list(range(1, len(events) + 1)):
                self.gaps.append(f"the log of session {session} is not numbered from 1 on")
            if len({id for _, id in events}) != len(events):
                self.duplicates.append(f"the log of session {session} has an event twice")
        answers = {
            message.agent_execution_id: message.content
            for message in evidence.messages
            if message.role is MessageRole.ASSISTANT
        }
        for log in evidence.subscribers:
            self._compare(log)
            for execution, text in log.texts.items():
                if text != answers.get(execution):
                    self.texts.append(
                        f"{log.subscriber} of session {log.session_id} was streamed {text!r} by "
                        f"execution {execution}, and stored is {answers.get(execution)!r}"
                    )

    def _compare(self, log: SubscriberLog) -> None:
        who = f"{log.subscriber} of session {log.session_id}"
        numbers = [seq for seq, _ in log.seen]
        true = self._true.get(log.session_id, [])
        if log.resets:
            self.gaps.append(f"{who} was told to start over, and nothing was deleted")
        if len(set(numbers)) != len(numbers):
            self.duplicates.append(f"{who} was told an event twice")
        if numbers != sorted(numbers):
            self.disorder.append(f"{who} was told events out of order")
        if missing := set(true) - {(seq, id) for seq, id in log.seen}:
            self.gaps.append(f"{who} missed {len(missing)} of {len(true)}, first {min(missing)}")
        if unheard := {(seq, id) for seq, id in log.seen} - set(true):
            self.disorder.append(f"{who} was told what is not in the log: {sorted(unheard)[:3]}")
