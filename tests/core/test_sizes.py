"""Sizes: one grammar, decimal and binary, and what is no size."""

from __future__ import annotations

import pytest

from suimon.core import sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("512B", 512), ("20MB", 20_000_000), ("20 mb", 20_000_000), ("1KiB", 1024),
     ("1.5GB", 1_500_000_000), ("0.001 kB", 1), ("2TiB", 2**41)],
)  # fmt: skip
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert sizes.parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "5", "MB", "-1MB", "1,5GB", "1e3", "10 apples", "1.MB", "٣MB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no size"):
        sizes.parse(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_960, "1 MB"), (10**10, "10 GB"),
     (1_434_000, "1.4 MB"), (5 * 10**15, "5000 TB")],
)  # fmt: skip
def test_a_size_is_said_in_few_digits(size: int, text: str) -> None:
    assert sizes.text_of(size) == text
