"""The conformance suite that every store passes: subclass with a ``store`` fixture and run pytest.

Beside what each method does, it checks what crashes and many writers must not break. The fixture
gives a fresh store; ``second_store`` one on the same database, as another process has it.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        async def store(self): ...

        @pytest.fixture
        async def second_store(self, store): ...
"""

from stepwell.testing.stores_claims import ClaimConformance
from stepwell.testing.stores_concurrency import ConcurrencyConformance
from stepwell.testing.stores_executions import ExecutionConformance
from stepwell.testing.stores_followers import FollowerConformance
from stepwell.testing.stores_sessions import SessionConformance
from stepwell.testing.stores_snapshots import SnapshotConformance
from stepwell.testing.stores_upkeep import UpkeepConformance


class StoreConformance(
    SessionConformance,
    ExecutionConformance,
    ClaimConformance,
    SnapshotConformance,
    UpkeepConformance,
    ConcurrencyConformance,
    FollowerConformance,
):
    """All of it."""
