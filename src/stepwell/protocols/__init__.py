"""AG-UI and the AI SDK: translators over journal entries, used by the library and the server."""
