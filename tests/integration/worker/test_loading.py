"""Which packages a worker loads."""

import subprocess
import sys

CHECK = """
import sys
import stepwell.worker.choice, stepwell.worker.embedded
stepwell.worker.choice.jobs_for("sqlite:///file.db")
print(sorted({"procrastinate", "psycopg", "psycopg_pool", "sqlalchemy"} & set(sys.modules)))
"""


def test_the_embedded_worker_loads_no_queue_and_no_driver() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"
