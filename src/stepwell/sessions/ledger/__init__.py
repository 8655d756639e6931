"""What is known of the calls of a step that is not stored yet, during a run and after a crash."""
