"""What is wrong with the event logs of sessions, and with what subscribers saw of them."""

from collections import Counter

from chaos.evidence import Evidence, SubscriberLog


class LogFaults:
    """The event logs have no holes, and every subscriber saw exactly what is in them."""

    def __init__(self, evidence: Evidence) -> None:
        self.gaps: list[str] = []
        self.duplicates: list[str] = []
        self.disorder: list[str] = []
        self._true = {
            session: [(event.seq, event.id) for event in events]
            for session, events in evidence.events.items()
        }
        for session, events in self._true.items():
            if [seq for seq, _ in events] != list(range(1, len(events) + 1)):
                self.gaps.append(f"the log of session {session} is not numbered from 1 on")
            if len({id for _, id in events}) != len(events):
                self.duplicates.append(f"the log of session {session} has an event twice")
        for session, log in evidence.events.items():
            ends = Counter(e.execution_id for e in log if e.type == "execution.completed")
            twice = [execution for execution, count in ends.items() if count > 1]
            self.duplicates.extend(f"execution {id} completed twice in {session}" for id in twice)
        for log in evidence.subscribers:
            self._compare(log)

    def _compare(self, log: SubscriberLog) -> None:
        who = f"{log.subscriber} of session {log.session_id}"
        numbers = [seq for seq, _ in log.seen]
        true = self._true.get(log.session_id, [])
        if len(set(numbers)) != len(numbers):
            self.duplicates.append(f"{who} was told an event twice")
        if numbers != sorted(numbers):
            self.disorder.append(f"{who} was told events out of order")
        if missing := set(true) - {(seq, id) for seq, id in log.seen}:
            self.gaps.append(f"{who} missed {len(missing)} of {len(true)}, first {min(missing)}")
        if unheard := {(seq, id) for seq, id in log.seen} - set(true):
            self.disorder.append(f"{who} was told what is not in the log: {sorted(unheard)[:3]}")
