"""What users ask of an execution or a session: cancel, answer, resume, fork, rename, close."""
