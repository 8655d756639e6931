"""What the demo's agent says: one function for each thing to try, from what was heard to the next
turn. The words are written here; what they tell of is what the tools really gave.
"""

import re
from textwrap import dedent

from stepwell.app.demo.conversation_end import ConversationEnd, SuiteRun, denial
from stepwell.app.scripted_words import ScriptedTurn, call
from stepwell.messages import ToolResult

TESTS = "python3 -m unittest 2>&1"
MISTAKE = """\
    with_tax = sum(prices) * (100 + tax_percent) // 100
    return with_tax - discount_percent
"""
FIXED = """\
    discounted = sum(prices) * (100 - discount_percent) // 100
    return discounted * (100 + tax_percent) // 100
"""
_SHOWN = dedent(FIXED)
SIZES = ("1 or 2", "3 or 4", "5 or more")
TENTS = (("tent-2", 2), ("tent-4", 4), ("tent-6", 6))
REVIEWER = "reviewer"


def fix_test(heard: ConversationEnd) -> ScriptedTurn:
    """Runs the tests, reads, changes a file once a person allows it, runs them again."""
    last = heard.last
    if last is None:
        words = "I look at the project and run its tests."
        return ScriptedTurn(words, (call("list_dir", path="."), call("bash", command=TESTS)))
    match last.tool_name:
        case "restore_project":
            return ScriptedTurn("Now the tests again.", (call("bash", command=TESTS),))
        case "read_file":
            return _propose(heard)
        case "edit_file" if not last.is_error:
            return ScriptedTurn(
                "The file is changed. Do the tests pass now?", (call("bash", command=TESTS),)
            )
        case "edit_file":
            return _not_changed(last)
        case _:
            return _after_tests(heard, last)


def _after_tests(heard: ConversationEnd, last: ToolResult) -> ScriptedTurn:
    run = SuiteRun.read(last.content)
    if run is None:
        return _could_not_run(last)
    if heard.of("edit_file"):
        return _report_fix(run)
    if not run.failed:
        words = "All tests pass: the mistake was already fixed. I restore it, to show the rest."
        return ScriptedTurn(words, (call("restore_project"),))
    names = ", ".join(f"`{name}`" for name in run.failed)
    return ScriptedTurn(
        f"{len(run.failed)} of {run.count} tests fail: {names} says `{run.why}`. I read the code "
        "and what is expected of it.",
        (call("read_file", path="prices.py"), call("read_file", path="test_prices.py")),
    )


def _propose(heard: ConversationEnd) -> ScriptedTurn:
    if not any("with_tax - discount_percent" in it.content for it in heard.of("read_file")):
        return ScriptedTurn(
            "`prices.py` is not as I know it, and my words are scripted, so I leave it alone. Ask "
            "me to *fix the tests* in a new conversation: the project is restored then."
        )
    edit = call("edit_file", path="prices.py", old_string=MISTAKE, new_string=FIXED)
    return ScriptedTurn(
        "Found it: `total()` takes the discount off as cents, and it is a percentage. I would like "
        "to change `prices.py`. **Changing files needs your approval**: allow it or deny it.",
        (edit,),
    )


def _not_changed(last: ToolResult) -> ScriptedTurn:
    reason = denial(last)
    if reason is None:
        return ScriptedTurn(
            f"The change did not work, so I stop here:\n\n```text\n{last.content}\n```"
        )
    why = f" (*{reason}*)" if reason else ""
    return ScriptedTurn(
        f"You denied the change{why}, so `prices.py` is **as it was** and `test_with_discount` "
        f"still fails. This is what I would have written:\n\n```python\n{_SHOWN}```\n\nA denied "
        "call never runs; the denial is in the record of this execution."
    )


def _report_fix(run: SuiteRun) -> ScriptedTurn:
    now = f"{run.count - len(run.failed)} of {run.count} pass"
    if run.failed:
        return ScriptedTurn(
            f"The file is changed, and still {', '.join(run.failed)} fails: `{run.why}`. With what "
            "you made of my change I can't go on; my words are scripted."
        )
    return ScriptedTurn(
        "## Fixed\n\nThe discount is a share of the sum now, taken before the tax.\n\n"
        "| tests | before | now |\n|---|---|---|\n"
        f"| `python3 -m unittest` | 1 fails | {now} |\n\n"
        f"```python\n{_SHOWN}```\n\n"
        "What happened here:\n\n"
        "1. the tests ran **in a sandbox**, without network, in one folder\n"
        "2. a failing command was no error of the run: I saw its output and went on\n"
        "3. the change waited for **you**, as long as you like\n\n"
        "*Why it stopped*, below, opens the execution: every step and every vote."
    )


def _could_not_run(last: ToolResult) -> ScriptedTurn:
    return ScriptedTurn(
        "The command failed with this message:\n\n"
        f"```text\n{last.content}\n```\n\n"
        "Without a sandbox that proves itself, commands are refused rather than run unconfined. "
        "`stepwell doctor` says how to get one. The other examples work without it."
    )


def recover(heard: ConversationEnd) -> ScriptedTurn:
    """Calls a tool in a way that fails, and makes use of what the failure says."""
    last = heard.last
    if last is None:
        return ScriptedTurn("I look it up.", (call("count_stock", item="lanterns"),))
    if last.is_error and len(heard.results) == 1:
        known = re.findall(r"[\w-]+", last.content.partition("items:")[2])
        item = next((name for name in known if "lanterns".startswith(name)), "lantern")
        words = f"That **failed**: the shop does not write it so. It knows `{item}`; once more."
        return ScriptedTurn(words, (call("count_stock", item=item),))
    if last.is_error:
        return ScriptedTurn(f"It failed again, so I stop: `{last.content}`")
    return ScriptedTurn(
        f"There are **{last.content} lanterns** in stock.\n\n"
        "My first call raised an error. The policy `retry_tool_errors(3)` let me go on: I saw the "
        "error, tried again, and the run counts as completed. `had_errors` stays true, and the "
        "execution page shows the vote that let it go on."
    )


def ask(heard: ConversationEnd) -> ScriptedTurn:
    """Asks a question with options, and goes by the answer."""
    last = heard.last
    if last is None:
        question = call(
            "user_input", question="How many people are to sleep in the tent?", options=list(SIZES)
        )
        return ScriptedTurn("One thing I can't find out myself.", (question,))
    if last.tool_name == "user_input":
        tent, people = _tent_for(last.content)
        return ScriptedTurn(
            f"So a tent for {people}. Is it there?", (call("count_stock", item=tent),)
        )
    answer = heard.of("user_input")[0].content if heard.of("user_input") else ""
    tent, people = _tent_for(answer)
    if last.is_error:
        return ScriptedTurn(f"The stock could not be read: `{last.content}`")
    is_there = "yes" if last.content.strip() != "0" else "**sold out**"
    return ScriptedTurn(
        f"### Your tent: {tent}\n\nYou said *{answer.strip()}*.\n\n"
        "| tent | people | in stock | can be had |\n|---|---:|---:|---|\n"
        f"| {tent} | {people} | {last.content} | {is_there} |\n\n"
        "While I waited for you, nothing of this run was in memory: the answer could have come "
        "days later, to another server."
    )


def _tent_for(answer: str) -> tuple[str, int]:
    """The tent that fits; the middle one if nobody knows."""
    numbers = [int(number) for number in re.findall(r"\d{1,3}", answer)]
    if not numbers:
        return TENTS[1]
    return next((tent for tent in TENTS if tent[1] >= numbers[-1]), TENTS[-1])


def delegate(heard: ConversationEnd) -> ScriptedTurn:
    """Has a subagent do a task of its own."""
    last = heard.last
    if last is None:
        task = "Review prices.py: is the total right? Run the tests as well. Answer briefly."
        return ScriptedTurn(
            "I give this to the reviewer, an agent of its own with its own conversation.",
            (call("spawn_subagent", subagent=REVIEWER, prompt=task),),
        )
    if last.is_error:
        return ScriptedTurn(f"The reviewer could not do it: {last.content}")
    quoted = "\n".join(f"> {line}" for line in last.content.splitlines())
    return ScriptedTurn(
        f"## The review\n\nThe reviewer says:\n\n{quoted}\n\n"
        "It could read files and run commands, and nothing else of mine; what it used counts "
        "against my limits. It has an execution of its own: see *Subagents* on the execution page."
    )


def review(heard: ConversationEnd) -> ScriptedTurn:
    """What the subagent says: it reads the file and runs the tests."""
    if not heard.results:
        return ScriptedTurn(
            "I read it and run the tests.",
            (call("read_file", path="prices.py"), call("bash", command=TESTS)),
        )
    read = "".join(result.content for result in heard.of("read_file"))
    run = SuiteRun.read("".join(result.content for result in heard.of("bash")))
    tests = "The tests could not be run."
    if run is not None:
        failing = ", ".join(f"`{name}`" for name in run.failed)
        tests = f"Tests: {run.count} ran, {failing + ' fails' if run.failed else 'all pass'}."
    if "with_tax - discount_percent" in read:
        return ScriptedTurn(
            "**Not right yet.** `total()` subtracts `discount_percent` as if it were cents, and "
            f"does so after the tax.\n\n{tests}"
        )
    return ScriptedTurn(
        f"**Looks right**: the discount is a share, taken before the tax.\n\n{tests}"
    )


PLACES = ("coin", "wallet", "pocket", "drawer", "sofa", "cellar", "garden", "attic", "shed", "moon")


def search_forever(heard: ConversationEnd) -> ScriptedTurn:
    """Never ends by itself: a limit stops it."""
    tried = len(heard.results)
    place = PLACES[tried % len(PLACES)]
    words = "I search for the lost coin." if not tried else f"Not there. What about the {place}?"
    return ScriptedTurn(words, (call("search_files", pattern=f"**/*{place}*"),))
