"""Time zones are those of the IANA database, on every machine the same."""

from __future__ import annotations

import shutil
import sys
import zoneinfo
from pathlib import Path

import pytest

from suimon.core import zones


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Asia/Tokyo", "EST5EDT", "Etc/GMT+5"])
def test_a_zone_is_known_by_its_name(name: str) -> None:
    assert zones.named(name).key == name


OTHERS = ["localtime", "posixrules", "Factory", "right/UTC", "posix/Asia/Tokyo"]


@pytest.mark.parametrize(
    "name", [*OTHERS, "", "Mars/Base", "../etc/localtime", "zone.tab", "Europe", "a\0b", "Asia/"]
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        zones.named(name)


def test_files_beside_the_zones_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has there: each of them opens, and means what the machine is set to."""
    data = next(Path(each) for each in [*zoneinfo.TZPATH, *sys.path]
                if (Path(each) / "UTC").is_file())  # fmt: skip
    for name in ("UTC", *OTHERS):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / "UTC", tmp_path / name)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(tmp_path)])
    zones._names.cache_clear()
    try:
        assert zones.named("UTC").key == "UTC"
        for name in OTHERS:
            assert zoneinfo.ZoneInfo.no_cache(name) is not None
            with pytest.raises(ValueError, match="no time zone"):
                zones.named(name)
    finally:
        zoneinfo.reset_tzpath(before)
        zones._names.cache_clear()
