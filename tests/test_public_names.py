"""What users may import: a list that changes only on purpose, and stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import suimon

NAMES = [
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


def test_the_public_names_are_these() -> None:
    assert suimon.__all__ == NAMES == sorted(NAMES)
    assert all(hasattr(suimon, name) for name in NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sooner'"):
        _ = suimon.Sooner


def test_importing_suimon_brings_no_driver_and_no_validator() -> None:
    """A slot imports it for every task: no psycopg, and pydantic only once something needs it."""
    code = "import suimon, sys; print([m for m in ('psycopg', 'pydantic', 'click', 'rich', "
    code += "'subprocess') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_task_and_pipeline_stay_functions_whatever_was_imported_first() -> None:
    """The modules `suimon.task` and `suimon.pipeline` have the names of two functions."""
    code = "import suimon.pipeline, suimon.task; from suimon import pipeline, task; "
    code += "print(task.__module__, callable(task), pipeline.__module__, callable(pipeline))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["suimon.task", "True", "suimon.pipeline", "True"]


def test_a_guardian_loads_neither_pipelines_nor_graphs() -> None:
    """It must be up in milliseconds and stay small; it has no use for either."""
    code = "import suimon.worker.guardian, sys; "
    code += "print(*sorted(m for m in sys.modules if m.startswith('suimon')))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "suimon",
        "suimon.core",
        "suimon.core.clock",
        "suimon.worker",
        "suimon.worker.guardian",
        "suimon.worker.processes",
    ]


def test_what_a_task_raises_to_come_back_is_what_the_slot_knows() -> None:
    """One class `Later`, wherever it is imported from."""
    from suimon.worker import slot_end

    assert suimon.Later is slot_end.Later
