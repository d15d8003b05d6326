"""Measures the engine on the path that users take: `python -m bench [SCENARIO ...]`.

Ordinary `@task` functions, real slot processes, a real worker process, fences, stored results that
are read back, and a PostgreSQL that really syncs. docs/performance.md says what the figures mean.
"""
