"""Files that are swapped while they are opened: what is read or written is the file that was judged."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import nexus
from nexus.agents.tools import files
from nexus.agents.tools.files import FileTools
from nexus.errors import ToolCallFailed, UnreadableFile
from nexus.workspace.config import OutsideFolder, SettingsFile
from nexus.workspace.files import containment
from nexus.workspace.files.containment import open_inside, read_file
from nexus.workspace.memory import files as memory_files

SECRET, PUBLIC = "hunter2-hunter2", "public"
ROUNDS = 5_000

Opener = Callable[..., Any]


@contextmanager
def opened_after_check(
    root: Path, name: str, *, judge: Callable[[tuple[str, ...]], None], **_: object
) -> Generator[int]:
    """A broken `open_inside`: the path is judged first, and opened later by its name."""
    real = (root / name).resolve(strict=True)
    judge(real.relative_to(root.resolve()).parts)
    handle = os.open(root / name, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a secret, a public file, a link to it, and a folder; outside are files of the same names."""
    folder = tmp_path / "workspace"
    for place, text in ((folder / "inner", PUBLIC), (tmp_path / "outside", SECRET)):
        place.mkdir(parents=True)
        (place / "notes.md").write_text(text)
    (folder / ".env").write_text(SECRET)
    (folder / "public.md").write_text(PUBLIC)
    (folder / "link.md").symlink_to("public.md")
    return folder


@pytest.fixture
def tools(root: Path) -> Iterator[FileTools]:
    with nexus.open(root, ledger=":memory:") as nx:
        yield FileTools(root, nx)


def link_swap(root: Path) -> Callable[[], None]:
    """Return a function that points `link.md` at the secret, or back."""
    targets = [".env", "public.md"]

    def swap() -> None:
        (root / "new").symlink_to(targets[0])
        (root / "new").replace(root / "link.md")
        targets.reverse()

    return swap


def folder_swap(root: Path) -> Callable[[], None]:
    """Return a function that replaces the folder `inner` by a link out of the workspace, or back."""
    (root / "aside").symlink_to(root.parent / "outside")
    names = [root / "inner", root / "aside"]

    def swap() -> None:
        names[0].rename(root / "moved")
        names[1].rename(names[0])
        (root / "moved").rename(names[1])

    return swap


def leaks_in_race(swap: Callable[[], None], read: Callable[[], str], rounds: int = ROUNDS) -> tuple[int, int]:
    """Read while a thread swaps as fast as it can; return the numbers of leaks, and of reads that were served."""
    stop, leaks, served = threading.Event(), 0, 0

    def run() -> None:
        while not stop.is_set():
            swap()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    racer = threading.Thread(target=run)
    racer.start()
    try:
        for _ in range(rounds):
            assert racer.is_alive()
            text = read()
            leaks += SECRET in text
            served += PUBLIC in text
    finally:
        stop.set()
        racer.join()
        sys.setswitchinterval(interval)
    return leaks, served


CALLS = ("stat", "lstat", "open", "readlink")
APART = 3
"""A swap back comes fewer calls later."""


def leaks_at_any_step(
    monkeypatch: pytest.MonkeyPatch, swap: Callable[[], None], read: Callable[[], str]
) -> tuple[int, int]:
    """Swap before each system call of a read, and back before one of the next; return leaks and number of schedules."""
    leaks = schedules = 0

    def run(steps: tuple[int, ...]) -> int:
        """Read, swapping before these calls; return the number of calls."""
        nonlocal leaks, schedules
        count = 0
        swaps = 0
        is_swapping = False

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def before(*arguments: Any, **options: Any) -> Any:
                nonlocal count, swaps, is_swapping
                if not is_swapping:
                    count += 1
                    for _ in range(steps.count(count)):
                        is_swapping = True
                        swap()
                        is_swapping = False
                        swaps += 1
                return call(*arguments, **options)

            return before

        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, counted(getattr(os, name)))
            text = read()
        if swaps % 2:
            swap()
        leaks += SECRET in text
        schedules += 1
        return count

    number = run(())
    for first in range(1, number + 1):
        run((first,))
        for second in range(first + 1, first + APART):
            run((first, second))
    return leaks, schedules


def tool_read(tools: FileTools, name: str = "link.md") -> Callable[[], str]:
    def read() -> str:
        with suppress(ToolCallFailed):
            return tools.read_file(name)
        return ""

    return read


@pytest.fixture(params=["by descriptor", "by path"])
def descriptors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containment, "BY_DESCRIPTOR", request.param == "by descriptor")


def test_link_swapped_as_fast_as_possible_never_shows_a_private_file(root: Path, tools: FileTools) -> None:
    leaks, served = leaks_in_race(link_swap(root), tool_read(tools))
    assert leaks == 0
    assert served > 0


def test_race_finds_a_build_that_checks_first(root: Path, tools: FileTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "open_inside", opened_after_check)
    leaks, _ = leaks_in_race(link_swap(root), tool_read(tools))
    assert leaks > 0


@pytest.mark.usefixtures("descriptors")
def test_link_swapped_before_any_system_call_never_shows_a_private_file(
    root: Path, tools: FileTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaks, schedules = leaks_at_any_step(monkeypatch, link_swap(root), tool_read(tools))
    assert leaks == 0
    assert schedules > 20


def test_schedules_find_a_build_that_checks_first(
    root: Path, tools: FileTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "open_inside", opened_after_check)
    leaks, _ = leaks_at_any_step(monkeypatch, link_swap(root), tool_read(tools))
    assert leaks > 0


def attachment(root: Path) -> str:
    with suppress(UnreadableFile):
        return read_file("inner/notes.md", 100, inside=root).decode()
    return ""


def settings(root: Path) -> str:
    with suppress(OutsideFolder, OSError):
        return SettingsFile(root / "inner" / "notes.md", "", root).text() or ""
    return ""


def instructions(root: Path) -> str:
    with suppress(OSError), open_inside(root, "inner/notes.md") as handle:
        return os.read(handle, 100).decode()
    return ""


def remembered(root: Path) -> str:
    with suppress(UnreadableFile):
        return memory_files.read(root, "inner/notes.md").text + "".join(memory_files.lines(root, "inner/notes.md"))
    return ""


def edited(root: Path) -> str:
    """Write to the file and return the secret if the one outside changed."""
    with suppress(UnreadableFile):
        memory_files.change(root, "inner/notes.md", lambda text: (f"{text[:10]}+", None))
    with suppress(UnreadableFile):
        memory_files.append(root, "inner/notes.md", "more")
    outside = root.parent / "outside"
    names = sorted(path.name for path in outside.iterdir())
    return "" if names == ["notes.md"] and (outside / "notes.md").read_text() == SECRET else SECRET


READERS = [attachment, settings, instructions, remembered, edited]


@pytest.mark.parametrize("read", READERS)
def test_folder_swapped_before_any_system_call_never_leads_out(
    root: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], str]
) -> None:
    leaks, schedules = leaks_at_any_step(monkeypatch, folder_swap(root), lambda: read(root))
    assert leaks == 0
    assert schedules > 20


@pytest.mark.parametrize("read", READERS[:-1])  # a writer creates a missing folder, which stops the swaps
def test_folder_swapped_as_fast_as_possible_never_leads_out(root: Path, read: Callable[[Path], str]) -> None:
    leaks, _ = leaks_in_race(folder_swap(root), lambda: read(root), 200)
    assert leaks == 0


@pytest.mark.parametrize("read", READERS)
def test_schedules_find_builds_that_open_by_path(
    root: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], str]
) -> None:
    """The broken build opens the resolved path's folder with links followed."""
    real = containment._folder

    @contextmanager
    def by_path(base: Path, parts: tuple[str, ...], **_: object) -> Generator[int | None]:
        with real(base.joinpath(*parts).parent, ()):
            handle = os.open(base.joinpath(*parts), os.O_RDONLY)
        try:
            yield handle
        finally:
            os.close(handle)

    monkeypatch.setattr(containment, "_folder", by_path)
    leaks, _ = leaks_at_any_step(monkeypatch, folder_swap(root), lambda: read(root))
    assert leaks > 0
