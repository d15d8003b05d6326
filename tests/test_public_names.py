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


def test_the_public_names_are_these() -> None:
    assert suimon.__all__ == NAMES == sorted(NAMES)
    assert all(hasattr(suimon, name) for name in NAMES)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Later'"):
        _ = suimon.Later


def test_importing_suimon_brings_no_driver_and_no_validator() -> None:
    """A slot imports it for every task: no psycopg, and pydantic only once something needs it."""
    code = "import suimon, sys; print([m for m in ('psycopg', 'pydantic', 'click', 'rich', "
    code += "'subprocess') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
