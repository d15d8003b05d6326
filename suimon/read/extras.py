"""Libraries that only some formats need, imported when such a file is opened.

They come with the extra `files` and are never fetched at run time. `missing()` lets a worker say at
its start what it cannot read, before a run meets it.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from suimon.errors import FileRefused

#: Format -> (module, the package's name).
NEEDED: Final[Mapping[str, tuple[str, str]]] = {"parquet": ("pyarrow", "pyarrow")}


def missing() -> dict[str, str]:
    """The formats that cannot be read here, each with the package that is not installed."""
    return {
        format_name: package
        for format_name, (module, package) in NEEDED.items()
        if importlib.util.find_spec(module) is None
    }


def need(module: str, *, what: str, name: str) -> Any:
    """The module, or FileRefused naming the extra that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        msg = f'"{name}" cannot be read: reading {what} needs the package "{package}"'
        hint = "install it on every worker: pip install 'suimon[files]'"
        raise FileRefused(msg, path=name, detail=str(error), hint=hint) from None
