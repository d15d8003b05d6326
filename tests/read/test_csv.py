"""Real files: streamed, text stays text, and what cannot be read says where."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suimon.errors import FileChanged, FileRefused
from suimon.read.source import open_source

HANDED = Path(__file__).parents[1] / "data" / "handed"
TRUTH = {
    entry["file"]: entry["truth"]
    for entry in json.loads((HANDED / "MANIFEST.json").read_text("utf-8"))["files"]
}


def rows(name: str, **options: Any) -> list[dict[str, str]]:
    return list(open_source(name, None, options, root=HANDED))


@pytest.mark.parametrize("encoding", ["cp932", "auto"])
def test_c37_windows_japanese_reads_cell_by_cell(encoding: str) -> None:
    truth = TRUTH["csv_cp932_extended.csv"]
    read = rows("csv_cp932_extended.csv", encoding=encoding)
    assert len(read) == truth["rows"]
    assert list(read[0]) == truth["columns"]
    assert list(read[0].values()) == truth["first_row"]
    assert list(read[1].values()) == truth["second_row"]


@pytest.mark.parametrize("encoding", ["utf-8", "shift_jis", "euc_jp", "ascii"])
def test_c37_a_wrong_encoding_is_refused_with_the_byte(encoding: str) -> None:
    with pytest.raises(FileRefused) as caught:
        rows("csv_cp932_extended.csv", encoding=encoding)
    data = (HANDED / "csv_cp932_extended.csv").read_bytes()
    with pytest.raises(UnicodeDecodeError) as python:
        data.decode(encoding)
    assert caught.value.byte == python.value.start
    assert f"byte {python.value.start}" in caught.value.message


@pytest.mark.parametrize("name", ["csv_utf8_bom.csv", "csv_utf8_bom_quoted_header.csv"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "auto", "UTF8"])
def test_c38_the_mark_is_no_part_of_the_first_name(name: str, encoding: str) -> None:
    read = rows(name, encoding=encoding)
    assert list(read[0]) == TRUTH[name]["columns"]
    assert len(read) == TRUTH[name]["rows"]


@pytest.mark.parametrize("name", ["csv_bom_only.csv", "zero_bytes.csv"])
def test_c38_a_file_with_nothing_in_it_is_called_empty(name: str) -> None:
    with pytest.raises(FileRefused, match="is empty"):
        rows(name)


def test_c39_zeros_in_front_stay() -> None:
    read = rows("csv_leading_zeros.csv")
    assert len(read) == TRUTH["csv_leading_zeros.csv"]["rows"]
    assert list(read[1].values()) == TRUTH["csv_leading_zeros.csv"]["row_index_1"]


def test_c40_a_first_quote_late_in_the_file_is_a_quote(tmp_path: Path) -> None:
    """The handed file, made again and proven equal by its hash."""
    late = '"x,y\nsecond line ""q""",999999\ntail,1000000\n'
    text = "col1,col2\n" + "".join(f"a{n},{n}\n" for n in range(20_600)) + late
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "c680edfe4f6d146be997b3322ea9c62d593d3f864343a1c268c013a1c3dc3421"
    (tmp_path / "late.csv").write_text(text, newline="")
    read = list(open_source("late.csv", root=tmp_path))
    assert len(read) == TRUTH["csv_first_quote_after_sample.csv"]["rows"]
    assert list(read[-2].values()) == TRUTH["csv_first_quote_after_sample.csv"]["row_before_last"]


def made(tmp_path: Path, data: bytes, name: str = "a.csv") -> str:
    (tmp_path / name).write_bytes(data)
    return str(tmp_path / name)


@pytest.mark.parametrize(
    ("data", "said", "row"),
    [
        (b"a,b\n1,2\n3\n", "row 2 (line 3) has too few fields: 1, the header has 2", 2),
        (b'a,b\n"1\n1",2\n3,4,5\n', "row 2 (line 4) has too many fields", 2),
        (b'a,b\n1,2\n3,"open\n', "row 2 (from line 3) cannot be read", 2),
        (b'a,b\n1,"x"y\n', "row 1 (from line 2) cannot be read", 1),
        (b"a,b\n1,2\n3,\xff\n", "row 2, byte 10 (0xff) is no text", 2),
        (b"a,b\n1,2\n3,\xe3\x81", "row 2, byte 10 (0xe3) is no text", 2),
        (b"a,a\n1,2\n", 'names the column "a" twice', 0),
        (b"a,\n1,2\n", "column 2 has no name", 0),
        (b"a,b\n1,\x002\n", "NUL character at byte 6", None),
        (b"\n \n", "is empty", None),
    ],
)
def test_what_cannot_be_read_says_where(
    tmp_path: Path, data: bytes, said: str, row: int | None
) -> None:
    with pytest.raises(FileRefused) as caught:
        list(open_source(made(tmp_path, data)))
    assert said in caught.value.message
    assert caught.value.row == row


def test_rows_before_the_bad_one_are_given(tmp_path: Path) -> None:
    """A stream fails where it fails, not earlier."""
    stream = open_source(made(tmp_path, b"a\n1\n2\n\xff\n"))
    assert [next(stream), next(stream)] == [{"a": "1"}, {"a": "2"}]
    with pytest.raises(FileRefused, match="row 3, byte 6"):
        next(stream)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"a;b,c;d\n1;2,3;4\n", "a.csv"),
        (b"a\tb,c\td\n1\t2,3\t4\n", "a.csv"),
        (b'"a;x;y;z",b\n1,2\n', "b.csv"),
        (b"a\tb\n1,5\t2\n", "c.tsv"),
        (b"only\n1\n", "d.csv"),
    ],
)
def test_the_delimiter_is_found_in_the_header_by_a_written_rule(
    tmp_path: Path, data: bytes, name: str
) -> None:
    """Most often in the header outside quotes; a tie goes to the comma; .tsv means tab."""
    read = list(open_source(made(tmp_path, data, name)))
    assert len(read) == 1
    assert len(read[0]) == {"a.csv": 3, "b.csv": 2, "c.tsv": 2, "d.csv": 1}[name]


def test_header_skip_and_delimiter_can_be_said(tmp_path: Path) -> None:
    path = made(tmp_path, b"report of today\n1|2\n")
    options = {"skip": 1, "header": ["a", "b"], "delimiter": "|"}
    assert list(open_source(path, "csv", options)) == [{"a": "1", "b": "2"}]
    options = {"skip": 1, "header": False, "delimiter": "|"}
    assert list(open_source(path, "csv", options)) == [{"column_1": "1", "column_2": "2"}]


def test_blank_lines_are_no_rows_and_a_header_alone_is_fine(tmp_path: Path) -> None:
    assert list(open_source(made(tmp_path, b"\na,b\n\n1,2\n\n\n"))) == [{"a": "1", "b": "2"}]
    assert list(open_source(made(tmp_path, b"a,b\n"))) == []
    assert list(open_source(made(tmp_path, b'a\n""\n'))) == [{"a": ""}]


cells = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="\x00"), max_size=6
)


@given(
    st.lists(st.tuples(cells, cells), max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["utf-8", "utf-16-le", "utf-16"]),
    st.integers(1, 7),
)
def test_any_text_survives_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[tuple[str, str]],
    end: str,
    encoding: str,
    piece: int,
) -> None:
    """Line ends, quotes, marks and characters may be cut anywhere by the reading of chunks."""
    quoted = ['"' + cell.replace('"', '""') + '"' for row in table for cell in row]
    lines = ["a,b", *(",".join(quoted[i : i + 2]) for i in range(0, len(quoted), 2))]
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes("".join(line + end for line in lines).encode(encoding))
    wanted = "auto" if encoding == "utf-16" else encoding
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suimon.read.text._CHUNK_BYTES", piece)
        read = list(open_source(path, None, {"encoding": wanted}))
    assert [tuple(row.values()) for row in read] == table


def consumed(stream: Iterable[Any]) -> int:
    return sum(1 for _ in stream)


def test_memory_is_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five times the rows, the same memory."""
    monkeypatch.setattr("suimon.read.text._CHUNK_BYTES", 16 * 1024)

    def peak(number: int) -> int:
        path = made(tmp_path, b"a,b\n" + b"some text,some more\n" * number, f"{number}.csv")
        tracemalloc.start()
        try:
            assert consumed(open_source(path)) == number
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1_000)
    assert peak(25_000) < 1.2 * peak(5_000) + 20_000


# --------------------------------------------------------------------------- wrong and odd files


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK\x03\x04rest", "a ZIP archive, perhaps an Excel workbook"),
        (b"PAR1rest", "a Parquet file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file"),
        (b"\x1f\x8b\x08", "compressed with gzip"),
        (b"%PDF-1.7", "a PDF"),
        (b"\xef\xbb\xbf <!DOCTYPE html><p>", "HTML or XML"),
        (b'<?xml version="1.0"?><a/>', "HTML or XML"),
        (b'{"id": 1, "name": "a"}\n', "holds JSON, not CSV"),
        (b'[{"id": 1}, {"id": 2}]', "holds JSON, not CSV"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "auto", "latin-1"])
def test_what_is_no_csv_is_named_for_what_it_is(
    tmp_path: Path, data: bytes, said: str, encoding: str
) -> None:
    with pytest.raises(FileRefused) as caught:
        list(open_source(made(tmp_path, data), "csv", {"encoding": encoding}))
    assert said in caught.value.message


KANA = "コード,取引先\n1,カタカナデータ\n2,ひらがな\n"


@pytest.mark.parametrize(
    "encoding",
    [
        "euc_jp",
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "iso2022_jp",
        "utf-32",
        "utf-32-le",
        "utf-32-be",
    ],
)
def test_other_encodings_are_read_when_named(tmp_path: Path, encoding: str) -> None:
    path = made(tmp_path, KANA.encode(encoding))
    assert next(open_source(path, None, {"encoding": encoding}))["取引先"] == "カタカナデータ"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (KANA, "euc_jp"),
        ("カタカナ\nカタカナデータ\n", "euc_jp"),
        ("nom\n\u00e9l\u00e8ve\ng\u00e9n\u00e9ral\n", "latin-1"),
        ("wort\nGR\u00dcN\n", "cp1252"),
        ("wort\nGr\u00f6\u00dfe\n", "cp1252"),
    ],
)
def test_auto_refuses_what_would_be_cp932_only_by_accident(
    tmp_path: Path, text: str, encoding: str
) -> None:
    """EUC-JP and Latin-1 are often valid cp932, as other text: in doubt nothing is guessed."""
    path = made(tmp_path, text.encode(encoding))
    with pytest.raises(FileRefused, match=r"the encoding of .* cannot be told"):
        list(open_source(path, None, {"encoding": "auto"}))


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_auto_finds_cp932_whatever_the_pieces(
    tmp_path: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suimon.read.text._CHUNK_BYTES", piece)
    path = made(tmp_path, "名前,ﾌﾘｶﾞﾅ\n髙橋①,ﾀｶﾊｼ\n".encode("cp932"))
    assert list(open_source(path, None, {"encoding": "auto"})) == [
        {"名前": "髙橋①", "ﾌﾘｶﾞﾅ": "ﾀｶﾊｼ"}
    ]


def test_jis_is_not_taken_for_utf_8(tmp_path: Path) -> None:
    """All bytes of ISO-2022-JP are ASCII: it would be read as something else, silently."""
    for encoding in ("utf-8", "auto", "ascii"):
        with pytest.raises(FileRefused, match="ISO-2022-JP"):
            list(
                open_source(made(tmp_path, KANA.encode("iso2022_jp")), None, {"encoding": encoding})
            )


def test_a_mark_of_another_encoding_than_named_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, "a\n1\n".encode("utf-16"))
    for encoding in ("utf-8", "cp932", "latin-1"):
        with pytest.raises(FileRefused, match="begins with the mark of utf-16-le"):
            list(open_source(path, None, {"encoding": encoding}))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("last", [True, False])
def test_any_line_end_will_do(tmp_path: Path, end: bytes, last: bool) -> None:
    data = end.join([b"a,b", b'1,"x' + end + b'y"', b"2,z"]) + (end if last else b"")
    found = list(open_source(made(tmp_path, data)))
    assert found == [{"a": "1", "b": f"x{end.decode()}y"}, {"a": "2", "b": "z"}]


@pytest.mark.parametrize(
    ("rest", "row"),
    [
        (b'8,"open at the end', 2),
        (b'8,"closed" and more\n', 2),
        (b'8,"one""\n', 2),
        (b'"8,x\n9,y\n', 2),
    ],
)
def test_quotes_broken_at_the_end_are_refused(tmp_path: Path, rest: bytes, row: int) -> None:
    stream = open_source(made(tmp_path, b"a,b\n7,fine\n" + rest))
    assert next(stream) == {"a": "7", "b": "fine"}
    with pytest.raises(FileRefused) as caught:
        list(stream)
    assert caught.value.row == row


def test_a_cell_may_be_large_and_a_line_has_a_bound(tmp_path: Path) -> None:
    cell = "x" * 3_000_000
    found = list(open_source(made(tmp_path, f'a,b\n"{cell}",1\n'.encode())))
    assert found == [{"a": cell, "b": "1"}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suimon.read.text.MAX_LINE_CHARS", 1_000_000)
        with pytest.raises(FileRefused, match="row 1"):
            list(open_source(made(tmp_path, f"a,b\n{cell},1\n".encode())))


# --------------------------------------------------------------------------- the file itself


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="there is no such file") as caught:
        open_source("inbox/a.csv", root=tmp_path)
    assert str(tmp_path) in (caught.value.hint or "")


def test_a_folder_and_an_unknown_ending_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="holds no csv files"):
        open_source(tmp_path, "csv")
    with pytest.raises(FileRefused, match="cannot be told from its name"):
        open_source(made(tmp_path, b"", "a.dat"))
    with pytest.raises(FileRefused, match='knows no option "delimter"'):
        open_source(made(tmp_path, b""), None, {"delimter": ","})


def test_a_file_that_is_not_the_expected_one_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, b"a\n1\n")
    status = Path(path).stat()
    expected = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
    assert consumed(open_source(path, expected=expected)) == 1
    for key, value in expected.items():
        with pytest.raises(FileChanged, match="has changed since"):
            open_source(path, expected={**expected, key: value + 1})


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, b"a\n1\n2\n")
    stream = open_source(path)
    next(stream)
    with Path(path).open("ab") as more:
        more.write(b"3\n")
    with pytest.raises(FileChanged, match="while it was read"):
        consumed(stream)
