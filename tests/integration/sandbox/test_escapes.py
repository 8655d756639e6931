"""The escape corpus: what confined commands try, judged from outside, in every sandbox there is."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import Ending, Sandbox, SandboxResult
from stepwell.sandbox.sandlock import SandlockSandbox
from stepwell.sandbox.unconfined import UnconfinedSandbox
from tests.integration.sandbox.escapes.attacks import ATTACKS, DETACHING, PRELUDE, Attack, together
from tests.integration.sandbox.escapes.world import Harm, World
from tests.integration.sandbox.watching import patiently

CONFINING = (BubblewrapSandbox, SandlockSandbox)
MANY_PROCESSES, MUCH_MEMORY = 24, 250_000_000
OWN_PROCESSES = 5
"""Those of a sandbox itself that carry the command in their command lines."""


MakeWorld = Callable[[], World]


@pytest.fixture
def make_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make() -> World:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(World(folder))
        monkeypatch.setenv("SOME_API_KEY", made[-1].token)
        monkeypatch.setenv("HARMLESS_NAME", made[-1].token)
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()


@pytest.fixture(scope="module")
def harmless() -> dict[tuple[str, Harm], bool]:
    """Whether all attacks of a kind, made in one run of a sandbox, did no harm."""
    return {}


@pytest.fixture(params=CONFINING, ids=lambda kind: kind.__name__)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    made = request.param()
    reason = made.unavailable()
    if reason is not None:
        pytest.skip(reason)
    return made


async def attempt(
    sandbox: Sandbox, source: str, world: World, *, seconds: float = 20
) -> SandboxResult:
    policy = ExecutionPolicy.in_(
        world.work,
        timeout=seconds,
        max_processes=MANY_PROCESSES,
        max_memory=MUCH_MEMORY,
        readable=[world.readable],
    )
    return await sandbox.run(["python3", "-I", "-S", "-c", source], policy)


async def no_harm_together(sandbox: Sandbox, world: World, kind: Harm) -> bool:
    attacks = [attack for attack in ATTACKS if attack.harm is kind]
    result = await attempt(sandbox, together(attacks, world.facts()), world, seconds=60)
    output = result.stdout + result.stderr
    # What could not even be tried proves nothing.
    assert result.stdout.endswith("all were tried\n"), output
    assert "SyntaxError" not in output
    assert "NameError" not in output
    return not world.harm(output)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
async def test_no_attack_succeeds(
    sandbox: Sandbox,
    make_world: MakeWorld,
    harmless: dict[tuple[str, Harm], bool],
    attack: Attack,
) -> None:
    kind = (sandbox.name, attack.harm)
    if kind not in harmless:
        harmless[kind] = await no_harm_together(sandbox, make_world(), attack.harm)
    if not harmless[kind]:
        # One of them did harm; each on its own shows which.
        world = make_world()
        result = await attempt(sandbox, attack.source(world.facts()), world)
        assert world.harm(result.stdout + result.stderr) == {}


@pytest.mark.parametrize("end", ["exit", "timeout"])
@pytest.mark.parametrize("way", DETACHING)
async def test_nothing_outlives_its_run(sandbox: Sandbox, world: World, way: str, end: str) -> None:
    source = Attack(way, Harm.LEFT, DETACHING[way]).source(world.facts())
    source += "\nprint('started', flush=True)" + ("\ntime.sleep(300)" if end == "timeout" else "")

    def tried(seconds: float) -> Awaitable[SandboxResult]:
        return attempt(sandbox, source, world, seconds=seconds)

    result = await (patiently(tried, "started") if end == "timeout" else tried(20))
    assert "started" in result.stdout
    assert result.ending is (Ending.TIMED_OUT if end == "timeout" else Ending.EXITED)
    assert world.harm() == {}


async def most_used(sandbox: Sandbox, world: World, script: str) -> tuple[int, int, SandboxResult]:
    """Run a script; the most processes and the most memory that were seen meanwhile."""
    known = "\n".join(f"{name} = {value!r}" for name, value in world.facts().items())
    run = asyncio.ensure_future(
        attempt(sandbox, f"{known}\n{PRELUDE}\n{script}", world, seconds=1.5)
    )
    processes = memory = 0
    while not run.done():
        processes = max(processes, len(world.alive()))
        memory = max(memory, world.memory())
        await asyncio.sleep(0.02)
    return processes, memory, await run


FORK_BOMB = """
while True:
    try: os.fork()
    except OSError: time.sleep(.01)
"""
MEMORY_BOMBS = {
    "of one process": "b = bytearray()\nwhile True: b += bytes(10_000_000)",
    "of many processes": """
for _ in range(12): os.fork() or [bytearray(b'x' * 60_000_000), time.sleep(2), os._exit(0)]
time.sleep(3)""",
    "of copied pages": """
b = bytearray(b'x' * 90_000_000)
for n in range(10):
    if os.fork() == 0:
        for i in range(0, len(b), 4096): b[i] = n
        time.sleep(2); os._exit(0)
time.sleep(3)""",
    "of shared pages": """
m = mmap.mmap(-1, 900_000_000)
for i in range(0, len(m), 4096): m[i] = 1
time.sleep(2)""",
    "of files in memory": """
f = os.memfd_create('x')
for _ in range(90): os.write(f, bytes(10_000_000))
m = mmap.mmap(f, 900_000_000)
for i in range(0, len(m), 4096): m[i]
time.sleep(2)""",
}


async def test_a_fork_bomb_stays_small(sandbox: Sandbox, world: World) -> None:
    processes, _, _ = await most_used(sandbox, world, FORK_BOMB)
    assert 2 < processes <= MANY_PROCESSES + OWN_PROCESSES
    assert world.harm() == {}


@pytest.mark.alone
@pytest.mark.usefixtures("no_control_groups")
@pytest.mark.parametrize("kind", MEMORY_BOMBS)
async def test_a_memory_bomb_stays_small_where_only_a_look_limits_it(
    sandlock: SandlockSandbox, world: World, kind: str
) -> None:
    _, memory, _ = await most_used(sandlock, world, MEMORY_BOMBS[kind])
    assert memory < 2 * MUCH_MEMORY
    assert world.harm() == {}


@pytest.mark.parametrize("kind", MEMORY_BOMBS)
async def test_a_memory_bomb_stays_small(sandbox: Sandbox, world: World, kind: str) -> None:
    _, memory, _ = await most_used(sandbox, world, MEMORY_BOMBS[kind])
    assert memory < 2 * MUCH_MEMORY
    assert world.harm() == {}


SAMPLE = [attack for attack in ATTACKS if attack.control][::3]


@pytest.mark.parametrize("attack", SAMPLE, ids=lambda attack: attack.name)
async def test_the_harm_is_noticed_where_nothing_confines(world: World, attack: Attack) -> None:
    result = await attempt(UnconfinedSandbox(), attack.source(world.facts()), world)
    assert attack.harm in world.harm(result.stdout + result.stderr)


@pytest.mark.parametrize("way", [way for way in DETACHING if "forking" not in way])
def test_survivors_are_noticed_where_nobody_ends_them(world: World, way: str) -> None:
    source = Attack(way, Harm.LEFT, DETACHING[way]).source(world.facts())
    subprocess.run(
        ["python3", "-I", "-S", "-c", source],
        cwd=world.work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert Harm.LEFT in world.harm()
    world.end_marked()
    assert world.alive() == []


def test_no_attack_addresses_more_than_its_own_victims() -> None:
    for attack in ATTACKS:
        for reach in ("PRIO_USER", "kill(-", "killall", "pkill"):
            assert reach not in attack.script, attack.name


def test_there_are_enough_attacks() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names) >= 100
