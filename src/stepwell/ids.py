"""Where ids come from: time-ordered UUIDs (version 7), or a factory that was injected."""

import os
import time
from collections.abc import Callable

IdFactory = Callable[[], str]


def new_id() -> str:
    """A UUID of version 7: unique, and sorted by the time it was made."""
    millis = time.time_ns() // 1_000_000
    noise = int.from_bytes(os.urandom(10))
    value = millis << 80 | 0x7 << 76 | (noise >> 68) << 64 | 0b10 << 62 | noise & (1 << 62) - 1
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
