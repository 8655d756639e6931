"""Works on executions: claim, lease, heartbeat, shutdown; embedded or behind a queue."""
