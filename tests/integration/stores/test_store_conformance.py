"""Both databases pass the suite that we ship for other stores."""

from stepwell.testing.stores import StoreConformance


class TestStores(StoreConformance):
    """Each test runs on SQLite and on PostgreSQL: see the fixture ``database``."""
