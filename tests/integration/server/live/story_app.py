"""An agent that tells a long story, for processes: where ``STAGE_HELD`` says so, it stops in the
middle; where ``STORY_ENDING`` is set, it ends otherwise.
"""

import os

from stepwell import Agent
from tests.browser.stage import Line, Scene, StagedModel

HELD_AFTER = "w029 "
ENDING = "STORY_ENDING"


def story(ending: str = "") -> str:
    """The whole text; with another ending from word 20 on."""
    first = [f"w{number:03d} " for number in range(60)]
    return "".join([*first[:20], ending] if ending else first)


def _tell(_: Scene) -> Line:
    ending = os.environ.get(ENDING, "")  # noqa: TID251 - set by the test that started this process
    return Line(story(ending), piece=7, pause=0.01)


agents = {"teller": Agent(StagedModel({"tell": _tell}))}
