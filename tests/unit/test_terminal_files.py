"""A file that comes out of the sandbox lands under its own name, here, and over nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.terminal.once import written_out
from bot.errors import BadInput


def test_a_file_lands_under_its_last_name_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert written_out(b"1\n", "../../out/report.csv", None) == "report.csv: 2 bytes"
    assert (tmp_path / "report.csv").read_bytes() == b"1\n"


def test_what_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "f"
    place.write_bytes(b"mine")
    with pytest.raises(BadInput, match="is there already"):
        written_out(b"theirs", "f", str(place))
    assert place.read_bytes() == b"mine"


def test_a_place_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        written_out(b"", "f", str(tmp_path / "none" / "f"))


def test_a_dash_is_the_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert written_out(b"\x00raw", "f", "-") == "4 bytes"
