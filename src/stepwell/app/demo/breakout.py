"""The scene in which the agent tries to leave its sandbox, and tells what came of it."""

from stepwell.app.demo.conversation_end import ConversationEnd
from stepwell.app.demo.workspace import OUTSIDE
from stepwell.app.scripted_words import ScriptedTurn, call

ATTEMPTS = {
    "read a file beside the project": f"cat ../{OUTSIDE}",
    "write into the system": "touch /usr/stepwell-demo",
    "connect to this server": "exec 3<>/dev/tcp/127.0.0.1/{port}",
    "work in the project": "touch tried && rm tried",
}
"""What is tried, in words, and how."""
ALLOWED = "work in the project"
YES, NO = "yes", "no"


def command(port: int) -> str:
    """One line for each attempt: whether it worked, and what it was."""
    lines = [
        f"if ({how.format(port=port)}) >/dev/null 2>&1; then echo '{YES}: {what}'; "
        f"else echo '{NO}: {what}'; fi"
        for what, how in ATTEMPTS.items()
    ]
    return "\n".join([*lines, 'echo "variables: $(env | cut -d= -f1 | sort | xargs)"'])


def outcomes(output: str) -> dict[str, bool]:
    """What worked, by attempt.

    >>> outcomes("no: write into the system\\nyes: work in the project")
    {'write into the system': False, 'work in the project': True}
    """
    pairs = (line.partition(": ") for line in output.splitlines())
    return {what: said == YES for said, _, what in pairs if what in ATTEMPTS and said in (YES, NO)}


def break_out(heard: ConversationEnd, port: int) -> ScriptedTurn:
    """Tries, and makes a table of it."""
    last = heard.last
    if last is None:
        words = "I try what a command must not be able to do, and what it may."
        return ScriptedTurn(words, (call("bash", command=command(port)),))
    worked = outcomes(last.content)
    if not worked:
        return ScriptedTurn(
            f"Nothing was run, and that is right so:\n\n```text\n{last.content}\n```\n\n"
            "`stepwell doctor` says how to get a sandbox."
        )
    rows = "\n".join(
        f"| {what} | {'yes' if did else 'no'} | {'yes' if what == ALLOWED else 'no'} |"
        for what, did in worked.items()
    )
    is_held = all(did == (what == ALLOWED) for what, did in worked.items())
    verdict = "It **holds**." if is_held else "It does **not** hold: please report this."
    return ScriptedTurn(
        f"## The sandbox\n\n{verdict}\n\n| I tried to | it worked | it should |\n|---|---|---|\n"
        f"{rows}\n\nOf this server's environment a command sees only a few harmless variables, "
        "never a key."
    )
