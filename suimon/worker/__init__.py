"""The processes that execute runs: worker, guardian, slots."""
