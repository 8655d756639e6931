"""What ``stepwell why`` prints for several executions, as JSON: ``python -m tests.browser.whys
<database> <execution>...``. One process for all: starting one takes longer than it runs."""

import json
import sys

from click.testing import CliRunner

from stepwell.cli.why import command

database, *executions = sys.argv[1:]
printed = {}
for execution in executions:
    result = CliRunner().invoke(command, [execution, "--db", database])
    printed[execution] = result.stdout if result.exit_code == 0 else f"failed: {result.output}"
print(json.dumps(printed))
