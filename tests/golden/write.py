"""Writes the golden files of the newest version: ``./dev python -m tests.golden.write``."""

import asyncio
import json

from tests.golden.scenario import Scenario
from tests.golden.test_envelopes import FILES, PRESETS, envelopes
from tests.golden.test_states import NEWEST, golden_files, shape


def main() -> None:
    NEWEST.mkdir(exist_ok=True)
    for name, content in golden_files(asyncio.run(Scenario().run())).items():
        (NEWEST / name).write_bytes(content)
    (NEWEST / "shape.json").write_text(json.dumps(shape(), indent=1) + "\n")
    for preset in PRESETS:
        (FILES / f"{preset}.jsonl").write_text(asyncio.run(envelopes(preset)))


if __name__ == "__main__":
    main()
