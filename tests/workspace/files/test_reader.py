"""Files of a workspace: what is read, what is refused, and that nothing outside is ever shown, on two ways of opening."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import nexus
from nexus.types.config import Config, FilesConfig
from nexus.workspace.files import containment as inside
from nexus.workspace.files import reader as files
from nexus.workspace.files.reader import Files
from support.ordinary_user import as_nobody

SECRET = "SECRET of somebody else"


@pytest.fixture(params=["by descriptor", "by path"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Linux and macOS, and as on a system that opens nothing relative to a folder."""
    assert inside.BY_DESCRIPTOR
    monkeypatch.setattr(inside, "BY_DESCRIPTOR", request.param == "by descriptor")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("AGENTS.md", "secret.md"):
        (folder / name).write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


def shown(root: Path, name: str = "AGENTS.md", **options: object) -> str:
    """The text, empty if none."""
    found, _ = Files(root, **options).read(name)  # pyright: ignore[reportArgumentType]
    return found.text if found else ""


def said(root: Path, name: str = "AGENTS.md", **options: object) -> str:
    """The warning, empty if none. What is refused shows nothing."""
    found, warned = Files(root, **options).read(name)  # pyright: ignore[reportArgumentType]
    assert warned is None or not warned.message.startswith("omitted") or found is None
    return warned.message if warned else ""


# links ---------------------------------------------------------------------------------------------------------------


def test_link_to_outside_file_is_rejected(root: Path, outside: Path) -> None:
    (root / "AGENTS.md").symlink_to(outside / "secret.md")
    assert said(root) == f"omitted: path outside the workspace: {outside / 'secret.md'}"


@pytest.mark.usefixtures("outside")
def test_relative_link_to_outside_is_rejected(root: Path) -> None:
    (root / "AGENTS.md").symlink_to("../outside/secret.md")
    assert said(root).startswith("omitted: path outside the workspace")


def test_file_in_folder_linked_outside_is_rejected(root: Path, outside: Path) -> None:
    (root / "memory").symlink_to(outside, target_is_directory=True)
    assert said(root, "memory/secret.md").startswith("omitted: path outside the workspace")


def test_chain_of_links_is_resolved(root: Path, outside: Path) -> None:
    (root / "two.md").symlink_to(outside / "secret.md")
    (root / "AGENTS.md").symlink_to("two.md")
    assert said(root).startswith("omitted: path outside the workspace")


@pytest.mark.parametrize("absolute", [True, False])
def test_links_inside_workspace_are_read(root: Path, absolute: bool) -> None:
    (root / "docs").mkdir()
    (root / "docs" / "rules.md").write_text("rules")
    target = root / "docs" if absolute else Path("docs")
    (root / "AGENTS.md").symlink_to(target / "rules.md")
    (root / "linked").symlink_to(target, target_is_directory=True)
    assert (shown(root), shown(root, "linked/rules.md")) == ("rules", "rules")


def test_workspace_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("rules")
    (tmp_path / "link").symlink_to(root, target_is_directory=True)
    assert shown(tmp_path / "link") == "rules"


def test_circular_link_is_reported(root: Path) -> None:
    (root / "AGENTS.md").symlink_to("SOUL.md")
    (root / "SOUL.md").symlink_to("AGENTS.md")
    assert "Too many levels of symbolic links" in said(root)


def test_broken_link_counts_as_absent(root: Path) -> None:
    (root / "AGENTS.md").symlink_to("nothing.md")
    assert Files(root).read("AGENTS.md") == (None, None)


def test_proc_link_to_own_process_is_rejected(root: Path) -> None:
    (root / "AGENTS.md").symlink_to("/proc/self/environ")
    assert said(root).startswith("omitted: path outside the workspace")


# hard links ----------------------------------------------------------------------------------------------------------


def test_outside_hard_link_is_rejected_with_advice(root: Path, outside: Path) -> None:
    (root / "AGENTS.md").hardlink_to(outside / "secret.md")
    text = said(root)
    assert text.startswith("omitted: hard link with 1 names in other folders")
    assert "files.hard_links" in text


def test_hard_links_in_same_folder_are_read(root: Path) -> None:
    (root / "AGENTS.md").write_text("rules")
    (root / "CLAUDE.md").hardlink_to(root / "AGENTS.md")
    assert (shown(root), shown(root, "CLAUDE.md")) == ("rules", "rules")


def test_hard_links_can_be_allowed(root: Path, outside: Path) -> None:
    (root / "AGENTS.md").hardlink_to(outside / "secret.md")
    assert shown(root, hard_links=True) == SECRET
    config = Config(files=FilesConfig(hard_links=True))
    assert SECRET in nexus.open(root, ledger=":memory:", config=config).assemble("hi").system_prompt
    assert SECRET not in nexus.open(root, ledger=":memory:").assemble("hi").system_prompt


def test_file_is_rejected_once_it_gets_an_outside_hard_link(root: Path, outside: Path) -> None:
    (root / "AGENTS.md").write_text("rules")
    reader = Files(root)
    assert reader.read("AGENTS.md")[0] is not None
    (outside / "name.md").hardlink_to(root / "AGENTS.md")
    assert reader.read("AGENTS.md")[0] is None


# folders swapped while a file is opened -------------------------------------------------------------------------------


def swapping(root: Path, outside: Path) -> Callable[[], None]:
    """Swaps the folder `memory` for a link to outside, or back."""
    inner, link = root / "memory", root / "link"
    inner.mkdir()
    (inner / "AGENTS.md").write_text("mine")
    link.symlink_to(outside, target_is_directory=True)
    names = [inner, link]

    def swap() -> None:
        inner.rename(root / "aside")
        names[1].rename(inner)
        (root / "aside").rename(names[1])

    return swap


def test_folder_swapped_for_link_before_open_is_rejected(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = swapping(root, outside)
    real = inside._contained

    def checked(base: Path, name: str) -> tuple[Path, tuple[str, ...]]:
        try:
            return real(base, name)
        finally:
            swap()

    monkeypatch.setattr(inside, "_contained", checked)
    found, warned = Files(root).read("memory/AGENTS.md")
    assert found is None
    assert warned is not None
    assert warned.message.startswith("omitted: ")


def test_file_swapped_for_link_before_open_is_rejected(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "AGENTS.md").write_text("mine")
    (root / "other").symlink_to(outside / "secret.md")
    real = inside._check_kind

    def checked(found: os.stat_result) -> None:
        real(found)
        if not (root / "AGENTS.md").is_symlink():
            (root / "other").rename(root / "AGENTS.md")

    monkeypatch.setattr(inside, "_check_kind", checked)
    assert SECRET not in shown(root)


def test_folder_swapped_for_link_during_open_is_rejected(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap, real = swapping(root, outside), os.open

    def opening(path: str, flags: int, *, dir_fd: int | None = None) -> int:
        if not str(path).endswith("AGENTS.md"):
            return real(path, flags, dir_fd=dir_fd)
        swap()
        try:
            return real(path, flags, dir_fd=dir_fd)
        finally:
            swap()

    monkeypatch.setattr(os, "open", opening)
    assert SECRET not in shown(root, "memory/AGENTS.md")


def test_folder_swap_race_never_shows_outside_text(root: Path, outside: Path) -> None:
    swap, stop, swaps, reads = swapping(root, outside), threading.Event(), 0, 0

    def run() -> None:
        nonlocal swaps
        while not stop.is_set():
            swap()
            swaps += 1

    racer = threading.Thread(target=run)
    racer.start()
    seen: set[str] = set()
    try:
        while racer.is_alive() and (swaps < 200 or reads < 500):
            reads += 1
            seen.add(shown(root, "memory/AGENTS.md"))
            assert Files(root).listed("memory")[0] == []
    finally:
        stop.set()
        racer.join()
    assert seen <= {"mine", ""}


# what is no file -----------------------------------------------------------------------------------------------------


def test_special_file_is_rejected_without_waiting(root: Path) -> None:
    os.mkfifo(root / "fifo.md")
    (root / "folder.md").mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        place = os.path.relpath(root / "socket.md")
        one.bind(place if len(place) < 100 else str(root / "socket.md"))
        for name in ("fifo.md", "folder.md", "socket.md"):
            assert said(root, name) == "omitted: not a regular file"


def test_device_is_rejected_without_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    was_opened: list[object] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **named: (was_opened.append(path), real(path, *rest, **named))[1]
    )
    assert said(Path("/dev"), "zero") == "omitted: not a regular file"
    assert not {"zero", "/dev/zero"} & set(was_opened)


def test_root_itself_is_not_a_file(root: Path) -> None:
    assert said(root, ".") == "omitted: not a regular file"


# sizes ---------------------------------------------------------------------------------------------------------------


def test_only_first_bytes_of_sparse_file_are_read(root: Path) -> None:
    with (root / "AGENTS.md").open("wb") as stream:
        stream.truncate(10_000_000_000)
    assert said(root).startswith("omitted: not text")


def test_huge_text_is_truncated_and_reported(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"rule\n" * 1_000_000)
    assert shown(root).startswith("rule\nrule\n")
    assert "of the first 4,000,000 bytes are shown" in said(root)


def test_character_split_at_read_limit_is_no_error(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"x" + "é".encode() * (files.READ_BYTES // 2 + 10))
    assert "not valid" not in said(root)


def test_long_single_line_is_truncated_at_cap(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"a" * 10_000_000)
    assert len(shown(root)) < files.FILE_CHARS + 200


# files that change ---------------------------------------------------------------------------------------------------


def test_file_changed_while_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "AGENTS.md").write_text("old")
    changes = iter(["new text"])
    changed_while_read(monkeypatch, lambda: (root / "AGENTS.md").write_text(next(changes)))
    found, warned = Files(root).read("AGENTS.md")
    assert (found and found.text, warned) == ("new text", None)


def test_file_replaced_while_read_is_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "AGENTS.md").write_text("old")
    (root / "new").write_text("new")
    changed_while_read(monkeypatch, lambda: (root / "new").rename(root / "AGENTS.md"))
    found, warned = Files(root).read("AGENTS.md")
    assert (found and found.text, warned) == ("new", None)


def test_growing_file_is_shown_with_warning_and_not_cached(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "AGENTS.md"
    path.write_text("line\n")

    def grow() -> None:
        with path.open("a") as stream:
            stream.write("line\n")

    with monkeypatch.context() as patch:
        changed_while_read(patch, grow)
        reader = Files(root)
        found, warned = reader.read("AGENTS.md")
    assert found is not None
    assert warned is not None
    assert warned.message == "changed 3 times while being read; the last version is shown"
    again, calm = reader.read("AGENTS.md")
    assert again is not None
    assert (again.text.count("line"), calm) == (path.read_text().count("line"), None)


def changed_while_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Makes a change right after bytes were read, as another program would."""
    real = os.read

    def read(handle: int, size: int) -> bytes:
        data = real(handle, size)
        if data:
            time.sleep(0.005)  # a file system counts time in steps
            with suppress(StopIteration, FileNotFoundError):
                change()
        return data

    monkeypatch.setattr(files.os, "read", read)


def test_same_size_changes_within_clock_step_are_both_seen(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def coarse(found: os.stat_result) -> inside.State:
        device, number, changed, state, size = inside.state_of(found)
        return device, number, changed - changed % 10_000_000, state - state % 10_000_000, size

    monkeypatch.setattr(files, "state_of", coarse)
    reader = Files(root)
    for number in range(60):
        (root / "AGENTS.md").write_text(f"{number:03}")
        found, _ = reader.read("AGENTS.md")
        assert found is not None
        assert found.text == f"{number:03}"


def test_file_deleted_during_open_counts_as_absent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "AGENTS.md").write_text("rules")
    real = inside._contained

    def gone(base: Path, name: str) -> tuple[Path, tuple[str, ...]]:
        (root / "AGENTS.md").unlink(missing_ok=True)
        return real(base, name)

    monkeypatch.setattr(inside, "_contained", gone)
    assert Files(root).read("AGENTS.md") == (None, None)


def test_replaced_workspace_is_read_again(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("first")
    nx = nexus.open(root, ledger=":memory:")
    assert "first" in nx.assemble("hi").system_prompt
    root.rename(tmp_path / "old")
    root.mkdir()
    (root / "AGENTS.md").write_text("other")
    prompt = nx.assemble("hi").system_prompt
    assert "other" in prompt
    assert "first" not in prompt


def test_deleted_workspace_is_reported_for_each_known_file(root: Path, tmp_path: Path) -> None:
    (root / "AGENTS.md").write_text("rules")
    nx = nexus.open(root, ledger=":memory:")
    nx.assemble("hi")
    root.rename(tmp_path / "old")
    for _ in range(2):
        warned = {note.source: note.message for note in nx.assemble("hi").warnings}
        assert warned["AGENTS.md"] == f"omitted: folder {root} no longer exists"


def test_missing_workspace_has_no_files(tmp_path: Path) -> None:
    assert Files(tmp_path / "none").read("AGENTS.md") == (None, None)
    assert Files(tmp_path / "none").listed("skills")[0] == []


def test_read_only_workspace_is_readable(root: Path) -> None:
    (root / "AGENTS.md").write_text("rules")
    root.chmod(0o555)
    with as_nobody(root):
        assert not os.access(root, os.W_OK, effective_ids=os.geteuid() != os.getuid())
        assert shown(root) == "rules"
    root.chmod(0o755)


def test_unreadable_file_is_reported() -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o755)
        (root / "AGENTS.md").write_text("rules")
        (root / "AGENTS.md").chmod(0)
        (root / "memory").mkdir()
        (root / "memory").chmod(0)
        with as_nobody(root):
            assert said(root) == "cannot be read: Permission denied"
            assert said(root, "memory/MEMORY.md") == "cannot be read: Permission denied"
        (root / "memory").chmod(0o755)


def test_unlistable_parent_folder_is_traversed() -> None:
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o755)
        (root / "memory").mkdir()
        (root / "memory" / "MEMORY.md").write_text("facts")
        (root / "memory").chmod(0o711)
        with as_nobody(root):
            assert shown(root, "memory/MEMORY.md") == "facts"


# text ----------------------------------------------------------------------------------------------------------------

TEXT = "Grüße, 你好 🙂"


@pytest.mark.parametrize(
    ("data", "text", "warned"),
    [
        pytest.param(TEXT.encode(), TEXT, "", id="UTF-8"),
        pytest.param(TEXT.encode("utf-8-sig"), TEXT, "", id="UTF-8 with BOM"),
        pytest.param(TEXT.encode("utf-16"), TEXT, "", id="UTF-16 with BOM"),
        pytest.param(b"\xfe\xff" + TEXT.encode("utf-16-be"), TEXT, "", id="UTF-16, big end first"),
        pytest.param(TEXT.encode("utf-32"), TEXT, "", id="UTF-32 with BOM"),
        pytest.param("plain rules".encode("utf-16-le"), "plain rules", "read as UTF-16", id="UTF-16 without BOM"),
        pytest.param("plain rules".encode("utf-16-be"), "plain rules", "read as UTF-16", id="the same, big end first"),
        pytest.param("Grüße".encode("latin-1"), "Gr\ufffd\ufffde", "not valid UTF-8", id="Latin-1"),
        pytest.param(b"a" * 200 + b"\0b", "a" * 200 + "\ufffdb", "1 NUL", id="a NUL"),
        pytest.param(b"\x7fELF\0\0\0\1" * 20, "", "omitted: not text", id="a program"),
        pytest.param(b"one\rtwo\rthree", "one\ntwo\nthree", "", id="lone CR"),
        pytest.param(b"one\r\ntwo\r\n", "one\ntwo", "", id="CRLF"),
        pytest.param("don\u00e2\u20ac\u2122t".encode(), "don\u00e2\u20ac\u2122t", "encoded twice", id="mojibake"),
        pytest.param("Â» fin de citation".encode(), "Â» fin de citation", "encoded twice", id="mojibake of Latin-1"),
        pytest.param("Tâche: œuvre, « ça »".encode(), "Tâche: œuvre, « ça »", "", id="French is none"),
        pytest.param("a\u202eb".encode(), "a\u202eb", "that a model reads (U+202E)", id="bidi override"),
        pytest.param("a\U000e0041".encode(), "a\U000e0041", "(U+E0041)", id="tag characters"),
        pytest.param("\U0001f3f4\U000e0067\U000e0062\U000e007f".encode(), "\U0001f3f4\U000e0067\U000e0062\U000e007f", "", id="a flag"),
        pytest.param("👩\u200d💻 می\u200cخواهم".encode(), "👩\u200d💻 می\u200cخواهم", "", id="joiners that are needed"),
        pytest.param(b"\xef\xbb\xbf", "", "", id="nothing but a BOM"),
        pytest.param(b"", "", "", id="nothing"),
        pytest.param(b"\xff\xfe\x00", "\ufffd", "not valid UTF-16", id="half a character"),
    ],
)  # fmt: skip
def test_encodings_are_decoded(root: Path, data: bytes, text: str, warned: str) -> None:
    (root / "AGENTS.md").write_bytes(data)
    assert shown(root) == text
    assert warned in said(root)
    assert bool(warned) == bool(said(root))


def test_two_decoding_notes_are_both_reported(root: Path) -> None:
    (root / "AGENTS.md").write_bytes(b"\xff" + b"line of rules\n" * 3_000)
    assert "not valid UTF-8" in said(root)
    assert "cap per file: 20,000" in said(root)


def test_double_encoded_character_is_reported() -> None:
    assert files.decode_text("Ã©€".encode())[1] == ("probably encoded twice ('Ã©' for 'é'); shown unchanged",)


# names ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../outside/secret.md", "path outside the workspace"),
        ("a/../../outside/secret.md", "path outside the workspace"),
        ("..", "path outside the workspace"),
        ("/etc/passwd", "path outside the workspace"),
        ("C:\\Windows\\win.ini", "path outside the workspace"),
        ("c:rules.md", "path outside the workspace"),
        ("\\\\?\\C:\\rules.md", "path outside the workspace"),
        ("a\nb.md", "name has control characters"),
        ("a\0b.md", "name has control characters"),
        ("a\udcffb.md", "name has control characters"),
        ("a\u2028b.md", "name has control characters"),
    ],
)
def test_name_outside_or_unprintable_is_rejected(root: Path, name: str, why: str) -> None:
    found, warned = Files(root).read(name)
    assert found is None
    assert warned is not None
    assert warned.message.startswith(f"omitted: {why}")
    assert warned.source.isprintable()
    names, trouble = Files(root).listed(name)
    assert names == []
    assert trouble is not None


def test_name_may_contain_parent_steps_and_any_printable_character(root: Path) -> None:
    (root / "sub").mkdir()
    for name in ("~", "a b", "ü\u3000メモ", "-", "x" * 252 + ".md", "..md", "a..b"):
        (root / name.encode()[:255].decode("utf-8", "ignore")).write_text("rules")
        assert shown(root, f"sub/../{name}") == "rules"


def test_too_long_name_is_reported_without_workspace_path(root: Path) -> None:
    assert said(root, "x" * 256) == "cannot be read: File name too long"


def test_persona_cannot_name_outside_file(root: Path, tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text(SECRET)
    (root / "personas").mkdir()
    ctx = nexus.open(root, ledger=":memory:").assemble("hi", persona="../..")
    assert SECRET not in json.dumps(ctx.to_openai())
    assert any("path outside the workspace" in note.message for note in ctx.warnings)


def test_names_differing_only_in_case_are_reported(root: Path) -> None:
    (root / "AGENTS.md").write_text("right")
    (root / "Agents.md").write_text("other")
    assert shown(root) == "right"
    assert said(root) == "differs only in case from Agents.md (the same file on some systems)"


def test_missing_file_warning_names_case_variant(root: Path) -> None:
    (root / "agents.md").write_text("rules")
    reader = Files(root)
    assert reader.read("AGENTS.md")[0] is None
    for _ in range(2):
        _, warned = reader.read("AGENTS.md")
        assert warned is not None
        assert warned.message == "not found, but agents.md exists (names are case-sensitive)"
    (root / "agents.md").rename(root / "AGENTS.md")
    assert reader.read("AGENTS.md")[1] is None


# folders -------------------------------------------------------------------------------------------------------------


def test_folder_listing_is_sorted_and_survives_circular_link(root: Path) -> None:
    for name in ("b", "a", "Z"):
        (root / "skills" / name).mkdir(parents=True)
    (root / "skills" / "file").write_text("")
    (root / "skills" / "linked").symlink_to("a", target_is_directory=True)
    (root / "skills" / "circle").symlink_to("circle")
    assert Files(root).listed("skills") == (["Z", "a", "b", "linked"], None)


def test_folder_linked_outside_is_not_listed(root: Path, outside: Path) -> None:
    (outside / "inner").mkdir()
    (root / "skills").symlink_to(outside, target_is_directory=True)
    names, warned = Files(root).listed("skills")
    assert names == []
    assert warned is not None
    assert warned.message.startswith("omitted: path outside the workspace")
    ctx = nexus.open(root, ledger=":memory:").assemble("hi")
    assert "skills/" in {note.source for note in ctx.warnings}


def test_large_folder_is_listed_in_part_with_warning(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (root / "skills" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(inside, "ENTRIES", 10)
    names, warned = Files(root).listed("skills")
    assert len(names) == 10
    assert warned is not None
    assert warned.message == "too many entries: some were not read"


def test_new_folder_is_seen_by_next_call(root: Path) -> None:
    (root / "skills" / "a").mkdir(parents=True)
    reader = Files(root)
    assert reader.listed("skills")[0] == ["a"]
    for number in range(100):
        (root / "skills" / f"b{number:03}").mkdir()
        assert len(reader.listed("skills")[0]) == number + 2


# cost ----------------------------------------------------------------------------------------------------------------


def test_warm_call_costs_one_stat_per_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "skills" / "a").mkdir(parents=True)
    (root / "AGENTS.md").write_text("rules")
    for place in (root / "AGENTS.md", root / "skills"):
        aged(place)
    reader = Files(root)
    calls: list[str] = []

    def call() -> None:
        reader.read("AGENTS.md")
        reader.read("SOUL.md")
        reader.listed("skills")

    call()
    for name in ("stat", "open", "scandir", "lstat", "readlink"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, _real=real, _name=name, **more: (calls.append(_name), _real(*given, **more))[1]
        )
    call()
    assert calls == ["stat", "stat", "stat"]


def aged(path: Path) -> None:
    """Waits until the path's last change is longer ago than a step of the file system's clock."""
    while inside.state_of(path.stat())[3] > time.time_ns() - 2 * files.STEP_NS:
        time.sleep(0.005)
