"""What this process itself executes and imports, kept out of the reach of tools and commands."""
