"""Text files as attachments: regular files, text by content, whole or some lines, within a cap that is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nexus.errors import UnreadableFile
from nexus.types.request import Attachment
from nexus.workspace.attachments import attachment_from_file, split_line_range


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1, 11)))
    return path


def test_whole_file_has_no_line_numbers(notes: Path) -> None:
    attachment, warned = attachment_from_file(notes)
    assert warned is None
    assert attachment == Attachment(str(notes), "\n".join(f"line {number}" for number in range(1, 11)))


def test_selected_lines_are_inclusive(notes: Path) -> None:
    assert attachment_from_file(notes, lines=(3, 4))[0] == Attachment(str(notes), "line 3\nline 4", 3, 4)
    assert attachment_from_file(notes, lines=(9, 99))[0] == Attachment(str(notes), "line 9\nline 10", 9, 10)


@pytest.mark.parametrize("lines", [(0, 1), (3, 2), (11, 12), (-1, 5)])
def test_missing_lines_error_names_line_count(notes: Path, lines: tuple[int, int]) -> None:
    with pytest.raises(UnreadableFile, match="has 10 lines"):
        attachment_from_file(notes, lines)


def test_text_over_cap_keeps_whole_lines_with_notice(notes: Path) -> None:
    attachment, warned = attachment_from_file(notes, max_chars=25)
    assert (
        attachment.text
        == f"line 1\nline 2\nline 3\n[50 more characters of {notes} left out (cap 25); read the file for the rest]"
    )
    assert (attachment.first_line, attachment.last_line) == (1, 3)
    assert warned is not None and warned.message == "50 of 71 characters omitted (cap: 25)"
    notes.write_text("x" * 100)
    assert attachment_from_file(notes, max_chars=25)[0].text.startswith("x" * 25 + "\n[75 more characters")


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0", b"a\0b", b"\x7fELF\x02", b"\xff\xd8\xff\xe0", bytes(range(256))]
)
def test_binary_file_is_rejected_by_content(notes: Path, data: bytes) -> None:
    notes.write_bytes(data)
    with pytest.raises(UnreadableFile, match=r"is not (UTF-8 or UTF-16 )?text"):
        attachment_from_file(notes)


def test_other_encodings_and_line_ends_are_read(notes: Path) -> None:
    for data in ("你好\r\nwelt".encode("utf-16"), "\ufeff你好\r\nwelt".encode(), "你好\nwelt\n".encode()):
        notes.write_bytes(data)
        assert attachment_from_file(notes)[0].text == "你好\nwelt"
    notes.write_text("\x1b[31mred\x1b[0m\tand\fmore")
    assert attachment_from_file(notes)[0].text == "\x1b[31mred\x1b[0m\tand\fmore"


def test_only_regular_files_inside_workspace_are_read(tmp_path: Path, notes: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "link.txt").symlink_to(notes)
    os.mkfifo(workspace / "pipe")
    (workspace / "empty").write_text("")
    for name in ("link.txt", "../notes.txt", str(notes), "pipe", ".", "empty", "missing"):
        with pytest.raises(UnreadableFile):
            attachment_from_file(name, inside=workspace)
    assert attachment_from_file(workspace / "link.txt")[0].text.startswith("line 1")


def test_line_range_follows_file_name_unless_file_exists(tmp_path: Path) -> None:
    assert split_line_range("a.py:3-14") == ("a.py", (3, 14))
    assert split_line_range("C:\\x.py:3-4") == ("C:\\x.py", (3, 4))
    assert split_line_range("a.py") == ("a.py", None)
    assert split_line_range("a.py:3") == ("a.py:3", None)
    odd = tmp_path / "odd:1-2"
    odd.write_text("x")
    assert split_line_range(str(odd)) == (str(odd), None)
