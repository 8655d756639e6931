"""What a chaos run is made of; the same value goes to every process of it."""

from pathlib import Path

from msgspec import Struct

from stepwell.sessions.principal import Principal
from stepwell.sessions.settings import SessionSettings

USER = Principal(user_id="chaos")


class ChaosSettings(Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    db: str
    executions: int = 200
    kills: int = 40
    seed: int = 1
    workers: int = 3
    concurrency: int = 10
    min_hits: int = 5
    freezes: int = 4
    restarts: int = 2
    bus: str = "database"
    """``redis`` for a Redis server beside the database."""
    bus_kills: int = 3
    server_kills: int = 3
    subscribers: int = 4
    seconds: float = 600.0
    pause_seconds: float = 0.2
    """How long a model's turn and a tool take."""
    lease_seconds: float = 3.0
    max_takeover_seconds: float = 5.0

    @property
    def sessions(self) -> int:
        """Over how many the executions are spread; each runs one at a time."""
        return max(1, min(self.executions, max(self.in_flight, self.executions // 5)))

    @property
    def most_executions(self) -> int:
        """How many are sent at most while there is damage left to do."""
        return 3 * self.executions

    @property
    def in_flight(self) -> int:
        """How many are sent ahead; half of what the workers could do, so that the others have
        hands free for what a dead one leaves."""
        return max(1, self.workers * self.concurrency // 2)

    @property
    def session_settings(self) -> SessionSettings:
        """How the workers behave. Executions survive more crashes here than by default: the run
        kills far more often than a fault of one execution would."""
        return SessionSettings(
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=self.lease_seconds / 3,
            poll_seconds=min(0.5, self.lease_seconds / 6),
            max_crashes=1000,
            concurrency=self.concurrency,
            max_unfinished_per_user=100_000,
        )


class Place(Struct, frozen=True, kw_only=True):
    """Where the processes of a run meet."""

    url: str
    """Of the database."""
    folder: str
    port: int = 0
    """Of the server that the subscribers follow."""
    bus_url: str | None = None

    @property
    def witness(self) -> str:
        """The socket of the witness."""
        return str(Path(self.folder) / "witness.sock")
