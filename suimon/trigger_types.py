"""What starts runs by itself, as Python writes it: `p.on(File("inbox/*.csv", settle="5s"))`.

Each class is one type of trigger and holds what the graph stores of it. They are judged where they
are given to a pipeline, with all other mistakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Trigger:
    """The base of all of them; not made by itself."""

    def __init__(self, kind: str, **fields: Any) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        self.fields: dict[str, Any] = {"type": kind, **given}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.fields}>"


def fields_of(trigger: object) -> dict[str, Any] | None:
    """What the graph stores of a trigger, or None for anything that is no trigger."""
    return trigger.fields if isinstance(trigger, Trigger) else None


class File(Trigger):
    """A file that arrives: one run per version of it.

    Input: `path`, `folder`, `name`, `size`, `mtime`, `event_id`. `path` is a pattern, relative to
    the folder of the pipelines, or the URL of an object store ("s3://bucket/in/*.csv").

    `settle`: how long a file must have been left alone ("2s"). `dedupe`: "version" (path, size,
    time, inode; the default) or "content". `mode`: "auto", "watch" (inotify) or "poll", every
    `interval`. `recursive`: also in folders below. `ignore`: patterns of names, instead of the
    usual temporary ones. `order`: "mtime" or "name". `empty`: "skip" or "take" files of no bytes.
    `follow_links`: links that stay inside. `done`, `failed`: folders, below the pattern's own
    folder, that a file is moved to when its run has ended.
    """

    def __init__(
        self,
        path: str,
        *,
        settle: str | None = None,
        dedupe: str | None = None,
        mode: str | None = None,
        interval: str | None = None,
        recursive: bool | None = None,
        ignore: Sequence[str] | None = None,
        order: str | None = None,
        empty: str | None = None,
        follow_links: bool | None = None,
        done: str | None = None,
        failed: str | None = None,
    ) -> None:
        super().__init__(
            "FILE",
            path=path,
            settle=settle,
            dedupe=dedupe,
            mode=mode,
            interval=interval,
            recursive=recursive,
            ignore=list(ignore) if isinstance(ignore, tuple) else ignore,
            order=order,
            empty=empty,
            followLinks=follow_links,
            done=done,
            failed=failed,
        )


class Cron(Trigger):
    """An instant of the calendar. Input: `scheduled_at`, `previous_at`, `folded`.

    `gap` and `fold` say what holds where a clock is put forward or back, `catch_up` what becomes of
    the instants that passed while nothing ran, `jitter` how much later than planned it may start.
    """

    def __init__(
        self,
        cron: str,
        *,
        tz: str = "UTC",
        gap: str | None = None,
        fold: str | None = None,
        catch_up: str | None = None,
        jitter: str | None = None,
    ) -> None:
        super().__init__(
            "CRON", cron=cron, tz=tz, gap=gap, fold=fold, catchUp=catch_up, jitter=jitter
        )


class Every(Trigger):
    """A fixed rhythm, counted from `anchor`. Input: `scheduled_at`, `previous_at`, `folded`.

    Without an anchor it counts from the first deploy, whatever is restarted later.
    """

    def __init__(
        self,
        every: str,
        *,
        anchor: str | None = None,
        catch_up: str | None = None,
        jitter: str | None = None,
    ) -> None:
        super().__init__("EVERY", every=every, anchor=anchor, catchUp=catch_up, jitter=jitter)


class Webhook(Trigger):
    """A call from outside, at `/webhooks/SLUG`. Input: `headers`, `body`, `delivery_id`,
    `received_at`.

    `preset` says how it is signed: "standard" (Standard Webhooks, the default), "github", "stripe",
    "slack", "gitlab", or "generic", which `header`, `algorithm`, `encoding`, `prefix`,
    `timestamp_header` and `template` describe. `secret` names where the signing secret lies:
    "env:NAME", "file:/path" or "secret:name"; a list of two while they are being exchanged.
    `key_header` names the delivery: a repetition with the same name is the same run.
    """

    def __init__(
        self,
        slug: str,
        *,
        preset: str | None = None,
        secret: str | Sequence[str] | None = None,
        key_header: str | None = None,
        header: str | None = None,
        algorithm: str | None = None,
        encoding: str | None = None,
        prefix: str | None = None,
        timestamp_header: str | None = None,
        template: str | None = None,
        tolerance: str | None = None,
        expects: str | None = None,
        max_body: int | None = None,
    ) -> None:
        super().__init__(
            "WEBHOOK",
            slug=slug,
            preset=preset,
            secret=secret if secret is None or isinstance(secret, str) else list(secret),
            keyHeader=key_header,
            header=header,
            algorithm=algorithm,
            encoding=encoding,
            prefix=prefix,
            timestampHeader=timestamp_header,
            template=template,
            tolerance=tolerance,
            expects=expects,
            maxBody=max_body,
        )


class Event(Trigger):
    """Something that was emitted. Input: `type`, `payload`, `event_id`, `occurred_at`."""

    def __init__(self, event: str) -> None:
        super().__init__("EVENT", event=event)
