"""What carries envelopes: to a terminal, a file, a test, Pusher, Redis, or several at once."""
