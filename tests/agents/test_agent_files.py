"""Tools for the files of a workspace: lines, lists, searches, their limits, and paths that must not be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from nexus.agents.tools import files
from nexus.agents.tools.files import FileTools
from nexus.errors import ToolCallFailed
from support.ordinary_user import as_nobody

SECRET = "hunter2-hunter2"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "src").mkdir(parents=True)
    (folder / "notes.md").write_text("one\ntwo\nthree\n")
    (folder / "src" / "app.py").write_text("def run():\n    return 'größe'\n")
    (folder / ".env").write_text(f"KEY={SECRET}\n")
    (folder / ".nexus").mkdir()
    (folder / ".nexus" / "notes.txt").write_text(SECRET)
    (tmp_path / "outside.txt").write_text(SECRET)
    return folder


@pytest.fixture
def tools(root: Path) -> Iterator[FileTools]:
    with nexus.open(root, ledger=":memory:") as nx:
        yield FileTools(root, nx)


def test_read_file_returns_a_short_file_unchanged(tools: FileTools) -> None:
    assert tools.read_file("notes.md") == "one\ntwo\nthree"
    assert tools.read_file("./src/../notes.md") == tools.read_file(str(tools.root / "notes.md")) == "one\ntwo\nthree"


def test_read_file_returns_a_range_of_lines(tools: FileTools) -> None:
    assert tools.read_file("notes.md", 2, 2) == "two\n[notes.md: lines 2 to 2 of 3]"
    with pytest.raises(ToolCallFailed, match="has 3 lines"):
        tools.read_file("notes.md", 4)
    with pytest.raises(ToolCallFailed, match="counted from 1"):
        tools.read_file("notes.md", 3, 2)


def test_read_file_says_how_to_read_on_and_the_parts_are_the_whole(tools: FileTools) -> None:
    whole = "".join(f"line {number} {'x' * (number % 90)}\n" for number in range(3_000))
    (tools.root / "long.txt").write_text(whole)
    parts: list[str] = []
    line = 1
    while True:
        text, _, note = tools.read_file("long.txt", line).rpartition("\n[long.txt: ")
        assert len(text) <= files.OUTPUT_CHARS
        parts.append(text)
        if "read on with first_line=" not in note:
            break
        line = int(note.partition("first_line=")[2].rstrip("]"))
    assert "\n".join(parts) + "\n" == whole


def test_read_file_returns_a_very_long_line_in_parts(tools: FileTools) -> None:
    (tools.root / "min.js").write_text("a" * files.OUTPUT_CHARS + "end")
    assert "read on with first_line=1, first_character=20001" in tools.read_file("min.js")
    assert tools.read_file("min.js", first_character=files.OUTPUT_CHARS + 1) == "end"


def test_read_file_reads_the_beginning_of_a_huge_file(tools: FileTools, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tools.root / "huge.log").open("wb") as file:
        file.write(b"first\n" * 10)
        file.truncate(8 << 40)  # eight terabytes without any block on the disk
    monkeypatch.setattr(files, "READ_BYTES", 60)
    assert tools.read_file("huge.log").startswith("first\n")
    assert "only the first 60 bytes can be read" in tools.read_file("huge.log")


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n" + bytes(200), bytes(range(256)) * 9])
def test_binary_file_is_refused(tools: FileTools, data: bytes) -> None:
    (tools.root / "data.bin").write_bytes(data)
    with pytest.raises(ToolCallFailed, match="not a text file"):
        tools.read_file("data.bin")


def test_other_encodings_and_empty_files_are_read(tools: FileTools) -> None:
    (tools.root / "utf16.txt").write_text("größe", "utf-16")
    (tools.root / "latin.txt").write_bytes("größe".encode("latin-1"))
    (tools.root / "empty.txt").write_text("")
    assert tools.read_file("utf16.txt") == "größe"
    assert "not valid UTF-8" in tools.read_file("latin.txt")
    assert tools.read_file("empty.txt") == "[empty.txt is empty]"


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt", "src/../../outside.txt", "/etc/passwd", "C:\\x", "~/x", "missing.txt", "src", "", "a\0b", "a\nb",
        ".env", "./.env", "src/../.env", ".ENV", ".nexus/notes.txt", ".Nexus/notes.txt", "x" * 5_000, "/", "\udcff",
    ],
)  # fmt: skip
def test_hostile_path_is_refused_without_its_content(tools: FileTools, path: str) -> None:
    with pytest.raises(ToolCallFailed) as caught:
        tools.read_file(path)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("target", ["../outside.txt", ".env", ".nexus/notes.txt", "/etc/passwd", "link.txt", "."])
def test_link_to_a_refused_file_is_refused(tools: FileTools, target: str) -> None:
    (tools.root / "link.txt").symlink_to(target)
    with pytest.raises(ToolCallFailed) as caught:
        tools.read_file("link.txt")
    assert SECRET not in str(caught.value)
    assert "outside.txt" not in str(caught.value)
    assert "link.txt:" not in tools.search_files(SECRET)
    assert "link.txt" not in tools.list_files()


def test_link_within_the_workspace_is_read(tools: FileTools) -> None:
    (tools.root / "link.md").symlink_to("notes.md")
    assert tools.read_file("link.md") == "one\ntwo\nthree"
    assert "link.md  14" in tools.list_files()


def test_hard_link_is_refused(tools: FileTools) -> None:
    os.link(tools.root / ".env", tools.root / "copy.txt")
    with pytest.raises(ToolCallFailed, match="hard link"):
        tools.read_file("copy.txt")
    assert SECRET not in tools.search_files("KEY")


def test_special_file_is_refused_without_waiting(tools: FileTools) -> None:
    os.mkfifo(tools.root / "pipe")
    with pytest.raises(ToolCallFailed, match="not a regular file"):
        tools.read_file("pipe")
    assert "pipe" not in tools.list_files()


def test_unreadable_file_is_named_and_counted(tools: FileTools) -> None:
    (tools.root / "closed.txt").write_text("two")
    (tools.root / "closed.txt").chmod(0)
    with as_nobody(tools.root):
        with pytest.raises(ToolCallFailed, match="cannot be read"):
            tools.read_file("closed.txt")
        assert "1 files are not text, or cannot be read" in tools.search_files("two")


def test_users_own_folder_is_refused_when_it_is_inside_the_workspace(tmp_path: Path) -> None:
    home = tmp_path / "settings"
    home.mkdir()
    (home / "notes.txt").write_text(SECRET)
    with nexus.open(tmp_path, ledger=":memory:", home=home) as nx:
        tools = FileTools(tmp_path, nx)
        with pytest.raises(ToolCallFailed, match="may contain secrets"):
            tools.read_file("settings/notes.txt")
        assert SECRET not in tools.search_files("hunter2")
        assert "settings" not in tools.list_files()


def test_list_files_is_sorted_with_sizes_and_without_secrets(tools: FileTools) -> None:
    assert tools.list_files() == "notes.md  14\nsrc/app.py  32"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", ["a.py", "deep/b.py", "deep/er/c.py"]),
        ("deep", ["deep/b.py", "deep/er/c.py", "deep/er/d.txt"]),
        ("deep/*.py", ["deep/b.py"]),
        ("**/er/*", ["deep/er/c.py", "deep/er/d.txt"]),
        ("deep/**/*.txt", ["deep/er/d.txt"]),
        ("**/**/[cd].*", ["deep/er/c.py", "deep/er/d.txt"]),
        (".hidden/*", [".hidden/e.py"]),
        ("node_modules", ["node_modules/f.py"]),
        ("*" * 300 + "b.py", ["deep/b.py"]),
    ],
)
def test_patterns_select_files(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for name in ("a.py", "deep/b.py", "deep/er/c.py", "deep/er/d.txt", ".hidden/e.py", "node_modules/f.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with nexus.open(tmp_path, ledger=":memory:") as nx:
        lines = FileTools(tmp_path, nx).list_files(pattern).splitlines()
    assert [line.partition("  ")[0] for line in lines if line[0] != "["] == expected


def test_long_list_is_cut_with_the_folders_of_the_rest(tools: FileTools) -> None:
    (tools.root / "many").mkdir()
    for number in range(files.LISTED + 50):
        (tools.root / "many" / f"{number:04}.txt").write_text("x")
    text = tools.list_files()
    assert len(text.splitlines()) == files.LISTED + 1
    assert "52 more files; choose a narrower pattern. Folders: many (50), . (1), src (1)" in text


def test_walk_stops_at_its_limit_and_says_so(tools: FileTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "VISITED", 1)
    assert "only 1 files were looked at" in tools.list_files()


def test_circles_of_links_end(tools: FileTools) -> None:
    (tools.root / "src" / "up").symlink_to("..")
    (tools.root / "a").symlink_to("b")
    (tools.root / "b").symlink_to("a")
    assert tools.list_files().splitlines()[:2] == ["notes.md  14", "src/app.py  32"]
    assert tools.search_files("two").startswith("notes.md:2: two")


def test_names_with_control_characters_are_counted_not_printed(tools: FileTools) -> None:
    (tools.root / "a\nnotes.md  99").write_text("x")
    assert "99" not in tools.list_files()
    assert "1 files have names with control characters" in tools.list_files()


def test_search_finds_text_and_expressions(tools: FileTools) -> None:
    assert tools.search_files("RETURN 'größe", ignore_case=True) == "src/app.py:2:     return 'größe'"
    assert tools.search_files(r"^t\w+", is_regex=True) == "notes.md:2: two\nnotes.md:3: three"
    assert tools.search_files("^t", "*.py").startswith("No line")
    assert tools.search_files("t", "src").startswith("src/app.py:2")


def test_search_shows_a_long_line_around_its_match_and_stops_at_its_limit(tools: FileTools) -> None:
    (tools.root / "data.json").write_text("x" * 100_000 + "needle" + "y" * 100_000)
    text = tools.search_files("needle")
    assert "needle" in text
    assert len(text) < 400
    (tools.root / "many.txt").write_text("needle\n" * 500)
    (tools.root / "more.txt").write_text("needle")
    text = tools.search_files("needle", "m*.txt")
    assert len(text.splitlines()) == files.MATCHES + 1
    assert "stopped before more.txt, after 100 matches" in text


@pytest.mark.parametrize("expression", [r"(a+)+$", r"((a{0,1000}){0,1000}){0,1000}$", r"^(\w*\w*\w*)*\1$"])
def test_expression_that_would_run_forever_is_stopped(
    tools: FileTools, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr(files, "SEARCH_S", 0.2)
    (tools.root / "aaa.txt").write_text("a" * 5_000 + "!")
    assert "use a simpler expression or fewer files" in tools.search_files(expression, is_regex=True)


@pytest.mark.parametrize("text", ["", "x" * 2_000, "(", "a{99999999999999999999}", "[z-a]"])
def test_invalid_expression_is_an_error_with_advice(tools: FileTools, text: str) -> None:
    with pytest.raises(ToolCallFailed, match=r"expression|empty or longer"):
        tools.search_files(text, is_regex=True)


NAMES = st.sampled_from([".", "..", "src", ".env", ".nexus", "notes.md", "notes.txt", "out", "in", "", "*", "**", "~"])


@given(path=st.lists(NAMES, max_size=6).map("/".join))
def test_no_path_leads_to_a_secret(path: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A law: whatever path or pattern a model gives, what it reads, lists and finds is never a secret's content."""
    folder = tmp_path_factory.getbasetemp() / "law" / "workspace"
    if not folder.exists():
        (folder / "src").mkdir(parents=True)
        (folder / ".nexus").mkdir()
        for place in (".env", ".nexus/notes.txt", "../notes.txt", "../.env"):
            (folder / place).write_text(SECRET)
        (folder / "notes.md").write_text("public")
        (folder / "out").symlink_to("..")
        (folder / "in").symlink_to(".nexus")
        (folder / "src" / "in").symlink_to("../.env")
    with nexus.open(folder, ledger=":memory:") as nx:
        tools = FileTools(folder, nx)
        for call in (
            lambda: tools.read_file(path),
            lambda: tools.search_files("hunter", path),
            lambda: tools.list_files(path),
        ):
            try:
                assert SECRET not in call()
            except ToolCallFailed as error:
                assert SECRET not in str(error)
