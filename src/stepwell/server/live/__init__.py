"""Live channels: server-sent events, the Pusher protocol, AG-UI and the AI SDK. All of them read
the journal from a cursor."""
