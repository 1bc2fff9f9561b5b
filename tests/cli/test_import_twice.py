"""Imports that meet: another import at the same time, a session that is not listed, a copy that came before its original."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import nexus
from cli.running import run, write_json
from cli.stored import rows_of
from nexus.engine import Engine
from nexus.errors import LedgerBusy
from nexus.interop.detect import read
from nexus.interop.importing import ATTEMPTS, ImportReport, import_transcript


def line(uuid: str, parent: str | None, session: str, **more: Any) -> dict[str, Any]:
    """A line of a session file: the user's where the id begins with u, the assistant's where it begins with a."""
    message: dict[str, Any] = {"role": "user", "content": f"say {uuid}"}
    if uuid.startswith("a"):
        content = [{"type": "text", "text": f"said {uuid}"}]
        message = {"id": f"m{uuid}", "role": "assistant", "model": "claude-opus-4-6", "content": content}
    return {"type": message["role"], "uuid": uuid, "parentUuid": parent, "sessionId": session, "message": message, **more,
            "timestamp": "2026-01-05T10:00:00Z"}  # fmt: skip


def written(path: Path, session: str, ids: str, *, fork: str = "", side: str = "") -> Path:
    """A file of lines that follow each other; `fork` follows the second one, and `side` is a sub-agent's conversation."""
    names = ids.split()
    lines = [line(one, parent, session) for one, parent in zip(names, [None, *names], strict=False)]
    branch = fork.split()
    lines[2:2] = [line(one, parent, session) for one, parent in zip(branch, [names[1], *branch], strict=False)]
    agent: list[str] = side.split()
    for one, parent in zip(agent, [None, *agent], strict=False):
        lines.append(line(one, parent, session, isSidechain=True, agentId="scout"))
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines), "utf-8")
    return path


def imported(nx: Engine, path: Path) -> list[ImportReport]:
    return [one for transcript in read(path) for one in import_transcript(nx, transcript)]


@pytest.fixture
def two(empty: Path) -> Generator[tuple[Engine, Engine]]:
    """Two engines on one ledger, as two programs have them."""
    with nexus.open(workspace=empty) as first, nexus.open(workspace=empty) as second:
        yield first, second


def before_the_next(nx: Engine, name: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Does something right before the engine's store writes next."""
    write = getattr(nx.ledger.store, name)

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(nx.ledger.store, name, write)
        act()
        return write(*args, **options)

    monkeypatch.setattr(nx.ledger.store, name, late)


FILES = {"plain": {}, "fork": {"fork": "u8 a8"}, "side": {"side": "u7 a7"}, "both": {"fork": "u8 a8", "side": "u7 a7"}}


@pytest.mark.parametrize("write", ["commit", "fork"])
@pytest.mark.parametrize("kind", FILES)
def test_concurrent_imports_add_once_and_report_nothing_added(
    two: tuple[Engine, Engine], tmp_path: Path, kind: str, write: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "log.jsonl", "s", "u1 a1 u2 a2", **FILES[kind])
    first, second = two
    others: list[ImportReport] = []
    before_the_next(first, write, lambda: others.extend(imported(second, path)), monkeypatch)
    own = imported(first, path)
    others.extend([] if others else imported(second, path))
    keys = {key for transcript in read(path) for key in transcript.all_keys()}
    assert sum(one.added_entries for one in own) + sum(one.added_entries for one in others) == len(keys)
    assert sum(one.messages for one in own + others) == len(keys)
    assert {key: len(first.ledger.store.holders(key)) for key in keys} == dict.fromkeys(keys, 1)
    assert [(one.added_entries, one.messages) for one in imported(first, path)] == [(0, 0)] * (
        2 if "side" in FILES[kind] else 1
    )


def test_import_adds_rest_after_concurrent_import_of_shorter_file(
    two: tuple[Engine, Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = written(tmp_path / "short.jsonl", "s", "u1 a1")
    path = written(tmp_path / "log.jsonl", "s", "u1 a1 u2 a2")
    before_the_next(two[0], "commit", lambda: imported(two[1], short), monkeypatch)
    assert [(one.added_entries, one.known_entries) for one in imported(two[0], path)] == [(2, 2)]
    assert [message.text() for message in two[0].history("s")] == ["say u1", "said a1", "say u2", "said a2"]


def test_import_gives_up_with_error_when_session_changes_constantly(
    two: tuple[Engine, Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.jsonl"
    ids = "u1 a1"
    imported(two[0], written(path, "s", ids))
    write, tries = two[0].ledger.store.commit, iter(range(10, 10 + ATTEMPTS))

    def late(*args: Any, **options: Any) -> Any:
        nonlocal ids
        ids += f" u{next(tries)}"
        imported(two[1], written(tmp_path / "other.jsonl", "s", ids))
        return write(*args, **options)

    monkeypatch.setattr(two[0].ledger.store, "commit", late)
    with pytest.raises(LedgerBusy, match="import again"):
        imported(two[0], written(path, "s", f"u1 a1 {' '.join(f'u{at}' for at in range(10, 12 + ATTEMPTS))}"))
    assert next(tries, None) is None


# sessions that are not listed ----------------------------------------------------------------------------------------


def grown(folder: Path, tmp_path: Path, status: str) -> Path:
    """A file that was imported, whose session was archived or deleted, and that grew."""
    path = written(tmp_path / "log.jsonl", "s", "u1 a1")
    assert run("import", path, folder=folder).code == 0
    assert run("session", status, "s", folder=folder).code == 0
    return written(path, "s", "u1 a1 u2 a2", fork="u8 a8", side="u7 a7")


def test_import_into_archived_session_adds_and_notes_status(empty: Path, tmp_path: Path) -> None:
    path = grown(empty, tmp_path, "archive")
    dry = run("import", path, "--dry-run", folder=empty)
    ran = run("import", path, folder=empty)
    assert (ran.code, dry.out.replace("would add", "added")) == (0, ran.out)
    assert "added 2 steps" in ran.out
    assert "session archived, so it is not listed (restore it: nexus session restore NAME)" in ran.out
    (one, *_) = run("import", path, "--json", folder=empty).json["imported"]
    assert (one["status"], one["rejected"]) == ("archived", 0)


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=str)
def test_import_into_deleted_session_adds_nothing_and_reports_it(
    empty: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = grown(empty, tmp_path, "delete")
    before = rows_of(empty)
    ran = run("import", path, *options, folder=empty)
    assert ran.code == 2
    assert "not imported: s: the file has 6 new steps, but the session was deleted" in ran.err
    assert "nexus session restore" in ran.err
    assert rows_of(empty) == before
    (one,) = run("import", path, *options, "--json", folder=empty).json["imported"]
    assert (one["status"], one["added_entries"], one["known_entries"], one["rejected"]) == ("deleted", 0, 2, 6)


def test_after_it_is_restored_all_of_the_file_is_added(empty: Path, tmp_path: Path) -> None:
    path = grown(empty, tmp_path, "delete")
    run("session", "restore", "s", folder=empty)
    ran = run("import", path, "--json", folder=empty)
    assert [(one["session"], one["added_entries"]) for one in ran.json["imported"]] == [
        ("s", 2),
        ("s~1", 2),
        ("s+scout", 2),
    ]


def test_a_deleted_session_whose_file_has_nothing_new_is_no_error(empty: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", "s", "u1 a1")
    run("import", path, folder=empty)
    run("session", "delete", "s", folder=empty)
    ran = run("import", path, folder=empty)
    assert (ran.code, ran.err) == (0, "")
    assert "session deleted (restore it" in ran.out


def test_a_fork_that_was_deleted_gets_nothing_and_the_others_get_theirs(empty: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", "s", "u1 a1 u2 a2", fork="u8 a8")
    run("import", path, folder=empty)
    run("session", "delete", "s~1", folder=empty)
    written(path, "s", "u1 a1 u2 a2 u3 a3", fork="u8 a8 u9 a9")
    ran = run("import", path, "--json", folder=empty)
    assert ran.code == 2
    told = [(one["session"], one["added_entries"], one["rejected"], one["status"]) for one in ran.json["imported"]]
    assert told == [("s", 2, 0, "active"), ("s~1", 0, 2, "deleted")]


# copies --------------------------------------------------------------------------------------------------------------


def test_original_imported_after_resumed_copy_is_alias_of_copy(empty: Path, tmp_path: Path) -> None:
    run("import", written(tmp_path / "copy.jsonl", "later", "u1 a1 u2 a2 u3 a3"), folder=empty)
    ran = run("import", written(tmp_path / "original.jsonl", "first", "u1 a1 u2 a2"), folder=empty)
    assert ran.out.startswith("later (claude_code): added 0 steps")
    assert "session 'later' contains all steps; session 'first' not created" in ran.out
    assert [one["label"] for one in run("sessions", "--json", folder=empty).json] == ["later"]


@pytest.mark.parametrize("parts", [{"fork": "u8 a8"}, {"side": "u7 a7"}], ids=str)
def test_what_only_the_original_has_is_added_beside_the_copy(
    empty: Path, tmp_path: Path, parts: dict[str, str]
) -> None:
    run("import", written(tmp_path / "copy.jsonl", "later", "u1 a1 u2 a2 u3 a3"), folder=empty)
    path = written(tmp_path / "original.jsonl", "first", "u1 a1 u2 a2", **parts)
    ran = run("import", path, "--json", folder=empty)
    first = ran.json["imported"][0]
    assert (first["session"], first["added_entries"]) == ("later", 0)
    name = "first~1" if "fork" in parts else "first+scout"
    (one,) = [one for one in run("sessions", "--json", folder=empty).json if one["label"] == name]
    assert (one["messages"], one["parent_session"]) == ((4, "") if "fork" in parts else (2, "later"))


def test_diverged_original_becomes_session_sharing_the_beginning(empty: Path, tmp_path: Path) -> None:
    run("import", written(tmp_path / "copy.jsonl", "later", "u1 a1 u2 a2 u3 a3"), folder=empty)
    path = written(tmp_path / "original.jsonl", "first", "u1 a1 u2 a2 u4 a4")
    assert "first (claude_code): added 2 steps" in run("import", path, folder=empty).out
    found = {one["label"]: one["messages"] for one in run("sessions", "--json", folder=empty).json}
    assert found == {"later": 6, "first": 6}


def test_a_fork_of_a_file_is_not_mixed_with_a_session_that_has_its_name(empty: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", "s", "u1 a1 u2 a2")
    run("import", path, folder=empty)
    run("fork", "s~1", "s", folder=empty)
    ran = run("import", written(path, "s", "u1 a1 u2 a2", fork="u8 a8"), "--json", folder=empty)
    assert [(one["session"], one["added_entries"]) for one in ran.json["imported"]] == [("s", 0), ("s~1-2", 2)]
    assert run("import", path, "--json", folder=empty).json["imported"][0]["added_entries"] == 0
    assert {one["label"] for one in run("sessions", "--json", folder=empty).json} == {"s", "s~1", "s~1-2"}


def test_an_empty_name_is_wrong_usage(empty: Path, tmp_path: Path) -> None:
    path = write_json(tmp_path / "talk.json", {"messages": [{"role": "user", "content": "Hi"}]})
    assert run("import", path, "-s", " ", folder=empty).code == 2
