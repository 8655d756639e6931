"""Which executions a worker may claim, and in which order; used by ``execution_rows``.

The table of executions is the queue on both databases. The texts name literal words, because a
partial index serves conditions with literal words only.
"""

from sqlalchemy import ClauseElement, column, text

from stepwell.stores import tables as t
from stepwell.stores.types import POSTGRESQL, SQLITE

_MOST_QUEUES = 300
"""Tenants that one look goes through for each agent; the oldest executions are looked at anyway."""
_OLDEST = 50
_FEW_QUEUES = 50
"""Up to so many tenants, a look may take several executions of one."""

_IS_HEAD = f"""(
    w.session_id IS NULL OR NOT EXISTS (
        SELECT 1 FROM agent_executions AS older
        WHERE older.session_id = w.session_id AND older.parent_execution_id IS NULL
        AND older.{t.UNFINISHED} AND (older.created_at, older.id) < (w.created_at, w.id)
    )
)"""
_HAS_NO_WORKER = """NOT EXISTS (
    SELECT 1 FROM agent_workers AS worker WHERE worker.id = w.worker_id
    AND worker.lease_until >= :now
)"""
_WAITS = "w.status = 'pending' AND w.parent_execution_id IS NULL"
_OF_TENANT = f"{_WAITS} AND w.{t.BY_TENANT}"
_RUNS = "w.status = 'running' AND w.parent_execution_id IS NULL"

# Written so that no partial index fits: a server without statistics would go through all that are
# unfinished for the few that have these ids.
_IS_FREE = f"""coalesce(w.parent_execution_id, w.id) = w.id AND (
    (w.status = 'pending' AND {_IS_HEAD}) OR (w.status = 'running' AND {_HAS_NO_WORKER})
)"""

_NEXT_AGENT = f"""(
    SELECT w.agent_type FROM agent_executions AS w WHERE {_WAITS}
    AND w.agent_type > {{behind}} ORDER BY w.agent_type LIMIT 1
)"""
_WAITING_AGENTS = f"""
waiting_agents (agent_type) AS (
    SELECT {_NEXT_AGENT.format(behind="''")}
    UNION ALL
    SELECT {_NEXT_AGENT.format(behind="a.agent_type")} FROM waiting_agents AS a
    WHERE a.agent_type IS NOT NULL
)"""
_AGENTS_OF_ALL = f"""{_WAITING_AGENTS},
agents (agent_type) AS (SELECT agent_type FROM waiting_agents WHERE agent_type IS NOT NULL)
"""
_GIVEN_AGENTS = "agents (agent_type) AS (SELECT {each} AS agent_type {of})"
_EACH = {
    SQLITE: {"each": "value", "of": "FROM json_each(:agents)"},
    POSTGRESQL: {"each": "jsonb_array_elements_text(CAST(:agents AS jsonb))", "of": ""},
}

_NEXT_TENANT = f"""(
    SELECT w.tenant_id FROM agent_executions AS w WHERE {_OF_TENANT}
    AND w.agent_type = a.agent_type {{behind}} ORDER BY w.tenant_id LIMIT 1
)"""
_QUEUES = f"""
queues (agent_type, tenant_id, number) AS (
    SELECT a.agent_type, {_NEXT_TENANT.format(behind="")}, 1 FROM agents AS a
    UNION ALL
    SELECT a.agent_type, {_NEXT_TENANT.format(behind="AND w.tenant_id > a.tenant_id")}, a.number + 1
    FROM queues AS a WHERE a.tenant_id IS NOT NULL AND a.number < {_MOST_QUEUES}
)"""
_HEADS_OF_TENANT = f"""
    SELECT {{columns}} FROM agent_executions AS w WHERE {_OF_TENANT}
    AND w.agent_type = a.agent_type AND w.tenant_id = a.tenant_id AND {_IS_HEAD}
    ORDER BY w.created_at, w.id
    LIMIT (SELECT CASE WHEN count(*) > {_FEW_QUEUES} THEN 1 ELSE :most END FROM queues)
"""
_OLDEST_HEADS = f"""
    SELECT {{columns}} FROM agent_executions AS w WHERE {_WAITS}
    AND w.agent_type = a.agent_type AND {_IS_HEAD} ORDER BY w.created_at, w.id LIMIT {_OLDEST}
"""
# SQLite has no lateral joins, and PostgreSQL would read the whole table for the other form.
_FOR_EACH = {
    SQLITE: (
        "SELECT e.id, e.tenant_id, e.created_at FROM {source} AS a "
        "CROSS JOIN agent_executions AS e WHERE e.id IN ({heads})",
        "w.id",
    ),
    POSTGRESQL: (
        "SELECT e.id, e.tenant_id, e.created_at FROM {source} AS a "
        "CROSS JOIN LATERAL ({heads}) AS e",
        "w.id, w.tenant_id, w.created_at",
    ),
}
_LOST = f"{_RUNS} AND {_HAS_NO_WORKER}"
_LOST_OF_AGENTS = f"""
    {_LOST} AND (w.agent_type IN (SELECT agent_type FROM agents) OR w.cancel_requested IS NOT NULL)
"""
_TO_END = f"{_WAITS} AND w.cancel_requested IS NOT NULL AND {_IS_HEAD}"
_ORDER = f"""
running (tenant_id, count) AS (
    SELECT w.tenant_id, count(*) FROM agent_executions AS w WHERE {_RUNS} GROUP BY w.tenant_id
),
placed (id, rank, created_at) AS (
    SELECT c.id, coalesce(r.count, 0) + row_number() OVER (
        PARTITION BY c.tenant_id ORDER BY c.created_at, c.id
    ), c.created_at
    FROM candidates AS c LEFT JOIN running AS r ON r.tenant_id = c.tenant_id
    UNION ALL
    SELECT w.id, -1, w.created_at FROM agent_executions AS w WHERE {{lost}}
    UNION ALL
    SELECT w.id, 0, w.created_at FROM agent_executions AS w WHERE {_TO_END}
)
SELECT id FROM placed GROUP BY id ORDER BY min(rank), min(created_at), id LIMIT :most
"""


def _claimable(dialect: str, agents: str, lost: str) -> ClauseElement:
    for_each, columns = _FOR_EACH[dialect]
    of_tenants = for_each.format(source="queues", heads=_HEADS_OF_TENANT.format(columns=columns))
    oldest = for_each.format(source="agents", heads=_OLDEST_HEADS.format(columns=columns))
    candidates = f"candidates (id, tenant_id, created_at) AS ({of_tenants} UNION {oldest})"
    order = _ORDER.format(lost=lost)
    return text(f"WITH RECURSIVE {agents}, {_QUEUES}, {candidates}, {order}").columns(column("id"))


CLAIMABLE = {
    dialect: _claimable(dialect, _GIVEN_AGENTS.format(**each), _LOST_OF_AGENTS)
    for dialect, each in _EACH.items()
}
"""Free executions of the ``agents``, a JSON list, ``most`` of them."""
_HAS_HEAD = f"""(
    SELECT 1 FROM agent_executions AS w WHERE {_WAITS} AND w.agent_type = a.agent_type
    AND {_IS_HEAD} ORDER BY w.created_at, w.id LIMIT 1
)"""
IS_WORK_WAITING = {
    dialect: text(
        f"WITH {_GIVEN_AGENTS.format(**each)} "
        f"SELECT (SELECT max({_HAS_HEAD}) FROM agents AS a) IS NOT NULL "
        f"OR EXISTS (SELECT 1 FROM agent_executions AS w WHERE {_LOST_OF_AGENTS}) "
        f"OR EXISTS (SELECT 1 FROM agent_executions AS w WHERE {_TO_END})"
    ).columns(column("is_waiting"))
    for dialect, each in _EACH.items()
}
"""Whether ``CLAIMABLE`` would give anything."""
CLAIMABLE_OF_ALL = {dialect: _claimable(dialect, _AGENTS_OF_ALL, _LOST) for dialect in _EACH}
"""The same for any agent."""
WAITING_AGENTS = text(
    f"WITH RECURSIVE {_WAITING_AGENTS} SELECT agent_type FROM waiting_agents "
    "WHERE agent_type IS NOT NULL"
).columns(column("agent_type"))
_IS_ONE_OF = {
    SQLITE: "w.id IN (SELECT value FROM json_each(:ids))",
    POSTGRESQL: "w.id = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text("
    "CAST(:ids AS jsonb)) AS uuid)))",
}
_LOCK = {SQLITE: "", POSTGRESQL: " FOR NO KEY UPDATE OF w SKIP LOCKED"}
FREE_OF = {
    dialect: text(
        f"SELECT w.id, w.status, w.worker_id FROM agent_executions AS w WHERE {is_one_of} "
        f"AND {_IS_FREE}{_LOCK[dialect]}"
    ).columns(column("id"), column("status"), column("worker_id"))
    for dialect, is_one_of in _IS_ONE_OF.items()
}
"""Those of the ``ids``, a JSON list, that are free, locked; with their status and worker."""
