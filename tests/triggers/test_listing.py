"""Folders as they are: links, loops, rights, empty and odd files. Real files, no database."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from suimon.triggers import file_rules, listing, mounts
from suimon.triggers.listing import Report, Seen


def look(pattern: str, **spec: Any) -> tuple[list[str], Report]:
    """Paths below the base, sorted, and what was left out."""
    rules = file_rules.of_spec({"path": pattern, **spec})
    report = Report()
    found = [os.fsdecode(each.path) for each in listing.look(rules, report)]
    return sorted(rules.below(path) or path for path in found), report


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_files_in_the_folder_and_below_only_when_asked(tmp_path: Path) -> None:
    for name in ("a.csv", "b.txt", "sub/c.csv", "sub/deep/d.csv"):
        write(tmp_path / name)
    assert look(f"{tmp_path}/*.csv")[0] == ["a.csv"]
    assert look(f"{tmp_path}/*.csv", recursive=True)[0] == ["a.csv", "sub/c.csv", "sub/deep/d.csv"]
    assert look(f"{tmp_path}/*/*.csv")[0] == ["sub/c.csv"]


def test_done_and_failed_and_hidden_folders_are_not_listed(tmp_path: Path) -> None:
    for name in ("a.csv", "done/b.csv", "failed/c.csv", ".git/d.csv", "done2/e.csv"):
        write(tmp_path / name)
    found, _ = look(f"{tmp_path}/*.csv", recursive=True, done="done", failed="failed/")
    assert found == ["a.csv", "done2/e.csv"]


def test_what_is_left_out_is_named_with_its_reason(tmp_path: Path) -> None:
    for name in ("a.csv", "~$a.csv", "b.csv.part"):
        write(tmp_path / name)
    write(tmp_path / "none.csv", "")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to("a.csv")
    found, report = look(f"{tmp_path}/*")
    assert found == ["a.csv"]
    assert {Path(p).name: why for p, why in report.left_out.items()} == {
        "~$a.csv": 'ignored by "~$*"',
        "b.csv.part": 'ignored by "*.part"',
        "none.csv": "it is empty",
        "pipe.csv": "it is no regular file",
        "link.csv": "it is a link, and follow_links is off",
    }
    assert look(f"{tmp_path}/none*", empty="take")[0] == ["none.csv"]


def test_links_are_followed_on_the_authors_word_and_never_out(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    write(inbox / "real" / "a.csv")
    write(tmp_path / "out" / "secret.csv")
    (inbox / "leak.csv").symlink_to(tmp_path / "out" / "secret.csv")
    (inbox / "leakdir").symlink_to(tmp_path / "out")
    (inbox / "inside.csv").symlink_to("real/a.csv")
    (inbox / "gone.csv").symlink_to("nowhere")
    assert look(f"{inbox}/*.csv", recursive=True)[0] == ["real/a.csv"]
    found, report = look(f"{inbox}/*.csv", recursive=True, followLinks=True)
    assert found == ["inside.csv", "real/a.csv"]
    assert report.left_out[f"{inbox}/leak.csv"] == "it is a link that leads outside of the folder"


def test_a_loop_of_links_comes_to_an_end(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "x.csv")
    (tmp_path / "a" / "b" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "self").symlink_to(".")
    found, _ = look(f"{tmp_path}/*.csv", recursive=True, followLinks=True)
    assert len(found) == 1
    assert found[0].endswith("x.csv")


def test_a_folder_that_is_gone_gives_nothing_and_says_so(tmp_path: Path) -> None:
    found, report = look(f"{tmp_path}/gone/*.csv")
    assert (found, report.vanished, report.complete) == ([], True, False)
    assert report.troubles == {f"{tmp_path}/gone": "there is no such folder"}
    write(tmp_path / "file")
    assert look(f"{tmp_path}/file/*.csv")[1].vanished


def test_names_of_any_bytes_are_found_under_their_bytes(tmp_path: Path) -> None:
    names = [
        b"line\nbreak.csv",
        b"caf\xe9.csv",
        "売上 ①.csv".encode(),
        b"-rf.csv",
        b"a" * 251 + b".csv",
    ]
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:  # noqa: PTH118, PTH123
            file.write(b"x")
    rules = file_rules.of_spec({"path": f"{tmp_path}/*.csv"})
    found = {os.path.basename(each.path) for each in listing.look(rules, Report())}  # noqa: PTH119
    assert found == set(names)


def test_a_socket_is_no_file() -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{short}/s.csv")
        assert look(f"{short}/*.csv")[0] == []


def test_a_version_is_path_size_time_and_inode() -> None:
    one = Seen(b"/in/a", 1, 2, 3, 4)
    assert one.version == one._replace(changed_ns=9).version
    others = [one._replace(path=b"/in/b"), one._replace(size=9), one._replace(mtime_ns=9),
              one._replace(inode=9), one._replace(tag="etag")]  # fmt: skip
    assert len({one.version, *(each.version for each in others)}) == 6


TABLE = r"""22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / /media/share rw - nfs4 server:/x rw
41 27 0:51 / /media/with\040space rw - fuse.sshfs host:/ rw
42 40 0:52 / /media/share/usb rw - vfat /dev/sdb1 rw
43 27 0:53 / /media/share rw - cifs //server/x rw
"""


@pytest.mark.parametrize(
    ("path", "kind", "told", "inodes"),
    [
        ("/srv/inbox", "ext4", True, True),
        ("/media/share/inbox", "cifs", False, False),
        ("/media/share/usb/x", "vfat", True, False),
        ("/media/with space", "fuse.sshfs", False, False),
        ("/media/shared", "ext4", True, True),
    ],
)
def test_the_file_system_of_a_folder_says_whether_inotify_and_inodes_can_be_trusted(
    path: str, kind: str, *, told: bool, inodes: bool
) -> None:
    assert mounts.kind_of(path, table=TABLE) == kind
    assert (mounts.is_told(kind), mounts.has_inodes(kind)) == (told, inodes)


def test_network_file_systems_are_listed_and_this_machine_has_a_table(tmp_path: Path) -> None:
    assert not mounts.is_told("nfs4")
    assert mounts.has_inodes("nfs4")
    assert mounts.kind_of(str(tmp_path))
