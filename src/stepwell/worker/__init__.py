"""Works on executions: claim, lease, heartbeat, shutdown. One worker for both databases."""
