"""Where the path of an input may lead; and that a version is the one that was meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from suimon.errors import FileChanged, FileRefused
from suimon.read import open_source
from suimon.read.fence import Fence
from suimon.read.versions import version_id


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    (root / "ok").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "inbox").mkdir()
    for path in (root / "ok" / "a.csv", tmp_path / "out" / "s.csv", tmp_path / "inbox" / "b.csv"):
        path.write_text("n\n1\n")
    (root / "ok" / "leak.csv").symlink_to(tmp_path / "out" / "s.csv")
    (root / "ok" / "leakdir").symlink_to(tmp_path / "out")
    (root / "ok" / "inside.csv").symlink_to("a.csv")
    return root


def read(root: Path, path: str, *folders: Path, kind: str | None = None) -> list[object]:
    asked: list[str] = []

    def more(real: str) -> Sequence[str]:
        asked.append(real)
        return [str(folder) for folder in folders]

    return list(open_source(path, kind, root=root, within=Fence(root, more)))


@pytest.mark.parametrize("path", ["ok/a.csv", "ok/../ok/a.csv", "ok/inside.csv", "./ok/a.csv"])
def test_a_path_that_stays_inside_is_read(root: Path, path: str) -> None:
    assert read(root, path) == [{"n": "1"}]
    assert read(root, str(root / path)) == [{"n": "1"}]


@pytest.mark.parametrize(
    "path",
    ["../out/s.csv", "ok/../../out/s.csv", "ok/leak.csv", "ok/leakdir/s.csv", "/etc/hostname",
     "../gone.csv", "ok/leakdir", "..", "/", "../code2/x.csv"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [None, "csv", "files"])
def test_a_path_that_leads_out_is_refused_before_anything_is_opened(
    root: Path, path: str, kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", lambda *_, **__: pytest.fail("opened"))
    monkeypatch.setattr(os, "scandir", lambda *_: pytest.fail("listed"))
    with pytest.raises(FileRefused) as caught:
        read(root, path, kind=kind)
    assert f'"{path}" leads outside of the folders that runs may read' in caught.value.render()


def test_folders_of_file_triggers_and_of_the_operator_may_be_read(root: Path) -> None:
    inbox = root.parent / "inbox"
    assert read(root, "../inbox/b.csv", inbox) == [{"n": "1"}]
    assert read(root, str(inbox / "b.csv"), inbox) == [{"n": "1"}]
    with pytest.raises(FileRefused):
        read(root, "../out/s.csv", inbox)


def test_a_link_that_appears_between_check_and_opening_gains_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "ok" / "a.csv"
    opened = os.open

    def late(*given: object, **more: object) -> int:
        path.unlink()
        path.symlink_to(root.parent / "out" / "s.csv")
        monkeypatch.setattr(os, "open", opened)
        return opened(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(FileRefused, match="leads outside"):
        read(root, "ok/a.csv")


def test_another_version_than_the_one_meant_is_refused(root: Path) -> None:
    path = root / "ok" / "a.csv"
    status = path.stat()
    facts = (status.st_size, status.st_mtime_ns)
    for inode in (status.st_ino, 0):  # 0: a file system that invents inodes
        version = version_id(bytes(path), *facts, inode)
        assert list(open_source(path, expected={"version": version})) == [{"n": "1"}]
    (root / "new").write_text("n\n2\n")
    os.utime(root / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (root / "new").replace(path)
    with pytest.raises(FileChanged, match="has changed since it started the run"):
        open_source(path, expected={"version": version_id(bytes(path), *facts, status.st_ino)})
