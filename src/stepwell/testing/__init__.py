"""Doubles for time, ids and the model's words, shipped for users' tests as well as ours."""

from stepwell.testing.cassette import CassetteModel
from stepwell.testing.clock import FakeClock, SequentialIds
from stepwell.testing.deterministic_driver import DeterministicAgentDriver, ScenarioStep
from stepwell.testing.fake_sandbox import FakeRun, FakeSandbox
from stepwell.testing.mock_tool import MockTool
from stepwell.testing.recorder import EventRecorder
from stepwell.testing.scripted_model import ScriptedModel, call

__all__ = [
    "CassetteModel",
    "DeterministicAgentDriver",
    "EventRecorder",
    "FakeClock",
    "FakeRun",
    "FakeSandbox",
    "MockTool",
    "ScenarioStep",
    "ScriptedModel",
    "SequentialIds",
    "call",
]
