"""Which packages a worker loads."""

import subprocess
import sys

CHECK = """
import sys
import stepwell.worker.worker
print(sorted({"psycopg", "sqlalchemy"} & set(sys.modules)))
"""


def test_a_worker_loads_no_driver() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"
