"""Deciding whether a run goes on: votes, the resolver, stop reasons, signals, cancellation."""

from stepwell.continuation.cancellation import Cancellation
from stepwell.continuation.decisions import AgentStatus, ContinuationDecision, StopReason
from stepwell.continuation.outcome import (
    AGGREGATE,
    ContinuationEvaluation,
    ContinuationOutcome,
    resolve,
)
from stepwell.continuation.signals import AgentStop, ContinueRequest, StopSignal, votes_of

__all__ = [
    "AGGREGATE",
    "AgentStatus",
    "AgentStop",
    "Cancellation",
    "ContinuationDecision",
    "ContinuationEvaluation",
    "ContinuationOutcome",
    "ContinueRequest",
    "StopReason",
    "StopSignal",
    "resolve",
    "votes_of",
]
