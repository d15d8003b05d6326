"""Real files, read as streams."""
