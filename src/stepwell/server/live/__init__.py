"""What clients are told while it happens: server-sent events, the Pusher protocol, AG-UI and the
AI SDK. All of them read the event log from a cursor."""
