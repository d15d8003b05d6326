"""The life of a run: one transition family per file, its SQL beside it."""
