"""The verbs of a pipeline that reach outside: files, queries over files, calls of destinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suimon import graph as graphs
from suimon.builder import After, Builder, Order
from suimon.destination import Destination, name_of
from suimon.reference import Reference


class Outside(Builder):
    """What `Pipeline` inherits; not made by itself."""

    #: Declarations that its HTTP vertices were given; a list of each pipeline's own.
    destinations: list[Destination]

    def read(
        self,
        id: str,  # noqa: A002
        path: str | Reference,
        /,
        *,
        format: str | None = None,  # noqa: A002
        encoding: str | None = None,
        delimiter: str | None = None,
        header: bool | int | Sequence[str] | None = None,
        skip: int | None = None,
        schema: Mapping[str, str] | None = None,
        on_bad_value: str | None = None,
        sheet: str | int | None = None,
        fill_merged: bool | None = None,
        formulas: str | None = None,
        match: str | None = None,
        ignore: Sequence[str] | None = None,
        recursive: bool | None = None,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
    ) -> Reference:
        """Read a file (CSV, JSONL, Parquet, Excel), a folder of them as one table, or, with
        `format="files"`, the list of a folder's files. Give it to `spawn` as items, or to a task.
        """
        config = {
            "format": format,
            "encoding": encoding,
            "delimiter": delimiter,
            "header": header if header is None or isinstance(header, int) else list(header),
            "skip": skip,
            "schema": schema if schema is None else dict(schema),
            "onBadValue": on_bad_value,
            "sheet": sheet,
            "fillMerged": fill_merged,
            "formulas": formulas,
            "match": match,
            "ignore": ignore if ignore is None else list(ignore),
            "recursive": recursive,
        }
        order = Order(after, when, unless, run_if)
        return self._add(id, graphs.READ, {"path": path}, config, order)

    def http(
        self,
        id: str,  # noqa: A002
        destination: Destination | str,
        /,
        *,
        path: Reference | str,
        method: str | None = None,
        json: Any = None,
        body: Reference | str | None = None,
        params: Any = None,
        headers: Any = None,
        expect: Sequence[int] | None = None,
        retries: int | None = None,
        backoff: str | None = None,
        deadline: str | None = None,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
    ) -> Reference:
        """Call a destination, within its limits: POST when there is `json` or a `body`, else GET.

        The result is `{"status": ..., "headers": {...}, "json": ...}`, with `text` instead of
        `json` when the answer is none. Statuses other than 2xx (or `expect`) fail the step; 408,
        425, 429, 5xx and broken connections are tried again (`retries`, 3 by default), others not.
        """
        if isinstance(destination, Destination):
            self.destinations.append(destination)
        sends = json is not None or body is not None
        config = {
            "destination": name_of(destination),
            "method": method or ("POST" if sends else None),
            "expect": None if expect is None else list(expect),
            "retries": retries,
            "backoff": backoff,
            "deadline": deadline,
        }
        given = {"path": path, "json": json, "body": body, "params": params, "headers": headers}
        inputs = {name: value for name, value in given.items() if value is not None}
        return self._add(id, graphs.HTTP, inputs, config, Order(after, when, unless, run_if))

    def sql(
        self,
        id: str,  # noqa: A002
        query: str,
        /,
        *,
        timeout: str | None = None,
        retries: int | None = None,
        backoff: str | None = None,
        deadline: str | None = None,
        after: After = (),
        when: Reference | None = None,
        unless: Reference | None = None,
        run_if: str | None = None,
        **inputs: Any,
    ) -> Reference:
        """One SELECT over files (Parquet, CSV, JSON), by DuckDB: `pip install 'suimon[lake]'`.

        `inputs` are the query's parameters: `$at` is `at=`; one in `read_parquet($files)` names
        files, relative ones below the folder of the pipelines. The result is the list of rows as
        objects, at most 10,000; a DECIMAL is its text.
        """
        config = {
            "query": query,
            "timeout": timeout,
            "retries": retries,
            "backoff": backoff,
            "deadline": deadline,
        }
        return self._add(id, graphs.SQL, inputs, config, Order(after, when, unless, run_if))
