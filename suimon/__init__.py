"""Suimon: durable pipelines on PostgreSQL alone.

What users import, each name loaded when it is first asked for: a guardian must be up in
milliseconds and loads neither pipelines nor graphs, and a task that imports `suimon` in a slot must
not bring a database driver with it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from suimon.client import AsyncClient, Client
    from suimon.context import Context, Later, MergeResult, Rows
    from suimon.destination import Destination
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
        StoragePressure,
        SuimonError,
        UnknownPipeline,
    )
    from suimon.pipeline import Limit, Pipeline, pipeline
    from suimon.task import task
    from suimon.trigger_types import Cron, Event, Every, File, Webhook

__all__ = [
    "AsyncClient",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Cron",
    "DatabaseUnavailable",
    "DefinitionError",
    "Destination",
    "DuplicateKeys",
    "Event",
    "Every",
    "Fatal",
    "File",
    "FileChanged",
    "FileRefused",
    "InputRefused",
    "InvalidJson",
    "ItemsChanged",
    "Later",
    "Limit",
    "LoadFailed",
    "MergeFailed",
    "MergeResult",
    "PayloadTooLarge",
    "Pipeline",
    "QueueFull",
    "Rows",
    "RunNotFound",
    "SchemaMismatch",
    "StoragePressure",
    "SuimonError",
    "UnknownPipeline",
    "Webhook",
    "pipeline",
    "task",
]

#: Where a name lives; all others are errors.
_HOMES: Final = {
    "AsyncClient": "suimon.client",
    "Client": "suimon.client",
    "Context": "suimon.context",
    "Cron": "suimon.trigger_types",
    "Destination": "suimon.destination",
    "Event": "suimon.trigger_types",
    "Every": "suimon.trigger_types",
    "File": "suimon.trigger_types",
    "Later": "suimon.context",
    "Limit": "suimon.pipeline",
    "MergeResult": "suimon.context",
    "Pipeline": "suimon.pipeline",
    "Rows": "suimon.context",
    "Webhook": "suimon.trigger_types",
    "pipeline": "suimon.pipeline",
    "task": "suimon.task",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES.get(name, "suimon.errors")), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """`suimon.task` and `suimon.pipeline` are the functions, also once their modules are loaded.

    Python binds a loaded submodule to its name in the package; these two names are the users'.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("pipeline", "task") and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
