"""Suimon: durable pipelines on PostgreSQL alone.

What users import. The client is loaded when it is first asked for: a task that imports `suimon`
in a slot must not bring a database driver with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suimon.context import Context, MergeResult, Rows
from suimon.errors import (
    Cancelled,
    Conflict,
    DatabaseUnavailable,
    DefinitionError,
    DuplicateKeys,
    Fatal,
    FileChanged,
    FileRefused,
    InputRefused,
    InvalidJson,
    ItemsChanged,
    LoadFailed,
    MergeFailed,
    PayloadTooLarge,
    QueueFull,
    RunNotFound,
    SchemaMismatch,
    SuimonError,
    UnknownPipeline,
)
from suimon.pipeline import Pipeline, pipeline
from suimon.task import task

if TYPE_CHECKING:
    from suimon.client import AsyncClient, Client

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "DatabaseUnavailable",
    "DefinitionError",
    "DuplicateKeys",
    "Fatal",
    "FileChanged",
    "FileRefused",
    "InputRefused",
    "InvalidJson",
    "ItemsChanged",
    "LoadFailed",
    "MergeFailed",
    "MergeResult",
    "PayloadTooLarge",
    "Pipeline",
    "QueueFull",
    "Rows",
    "RunNotFound",
    "SchemaMismatch",
    "SuimonError",
    "UnknownPipeline",
    "pipeline",
    "task",
]

_LAZY = {"Client": "suimon.client", "AsyncClient": "suimon.client"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
