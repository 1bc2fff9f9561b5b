"""The list of credentials: names and places only, private, whole or absent; what is damaged stays as it is."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from nexus.errors import CredentialError
from nexus.workspace.credentials import index
from nexus.workspace.credentials.index import FILE, CredentialEntry, change, read
from support.errors import has_code

ENTRY = CredentialEntry("twitter", "variable", variable="TWITTER_TOKEN")


def add(home: Path, entry: CredentialEntry = ENTRY) -> None:
    change(home, lambda known: {**known, entry.name: entry}.values())


def test_index_round_trips_in_known_form(home: Path) -> None:
    add(home)
    add(home, CredentialEntry("github", "keyring", "nexus", state="broken", checked_ms=7))
    assert list(read(home)) == ["github", "twitter"]
    assert (home / FILE).read_text() == (
        '{\n  "form": 1,\n  "credentials": [\n    {\n      "name": "github",\n      "where": "keyring",\n'
        '      "service": "nexus",\n      "state": "broken",\n      "checked_ms": 7\n    },\n    {\n'
        '      "name": "twitter",\n      "where": "variable",\n      "variable": "TWITTER_TOKEN"\n    }\n  ]\n}\n'
    )


def test_index_file_is_private_for_any_umask(home: Path) -> None:
    before = os.umask(0)
    try:
        add(home)
    finally:
        os.umask(before)
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_missing_index_has_no_entries(home: Path) -> None:
    assert read(home) == {}
    home.write_text("a file where the folder should be")
    assert read(home) == {}


DAMAGED = {
    "empty": b"", "text": b"not json", "list": b"[]", "newer": b'{"form": 2}', "no form": b"{}", "nul": b"\0" * 40,
    "cut": b'{"form": 1, "credentials": [{"name": "twi', "deep": b"[" * 100_000, "latin": b'{"form": 1, "x": "\xe9"}',
    "field": b'{"form": 1, "credentials": [{"name": "a", "where": "keyring", "service": "s", "value": "hunter2"}]}',
    "where": b'{"form": 1, "credentials": [{"name": "a", "where": "hunter2"}]}',
    "path": b'{"form": 1, "credentials": [{"name": "../hunter2", "where": "keyring", "service": "s"}]}',
    "line": b'{"form": 1, "credentials": [{"name": "a\\nhunter2", "where": "keyring", "service": "s"}]}',
    "variable": b'{"form": 1, "credentials": [{"name": "a", "where": "variable", "variable": "hunter2 x"}]}',
    "twice": b'{"form": 1, "credentials": [{"name": "a", "where": "keyring", "service": "s"}, {"name": "a", "where": "keyring", "service": "s"}]}',
    "number": b'{"form": 1, "credentials": [{"name": 5, "where": "keyring"}]}', "huge": b" " * (index.MAX_BYTES + 1),
}  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_index_is_an_error_and_stays_unchanged(home: Path, data: bytes) -> None:
    home.mkdir()
    (home / FILE).write_bytes(data)
    for touch in (read, add):
        with pytest.raises(CredentialError, match="left unchanged", check=has_code("credentials_damaged")) as caught:
            touch(home)
        assert "hunter2" not in str(caught.value)
    assert (home / FILE).read_bytes() == data
    assert [one.name for one in home.iterdir()] == [FILE]


def test_link_folder_or_pipe_is_not_an_index(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    outside = tmp_path / "outside.json"
    outside.write_text('{"form": 1}')
    for make in (lambda: (home / FILE).symlink_to(outside), (home / FILE).mkdir, lambda: os.mkfifo(home / FILE)):
        make()
        for touch in (read, add):
            with pytest.raises(CredentialError, match="left unchanged", check=has_code("credentials_damaged")):
                touch(home)
        (home / FILE).rmdir() if (home / FILE).is_dir() else (home / FILE).unlink()
    assert outside.read_text() == '{"form": 1}'


def test_failed_change_leaves_file_and_no_lock(home: Path) -> None:
    add(home)
    before = (home / FILE).read_bytes()

    def fail(_: object) -> list[CredentialEntry]:
        raise KeyError("x")

    with pytest.raises(KeyError):
        change(home, fail)
    assert (home / FILE).read_bytes() == before
    assert [one.name for one in home.iterdir()] == [FILE]


def test_stale_lock_error_names_the_lock_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LOCK_WAIT_S", 0.05)
    home.mkdir()
    (home / f"{FILE}.lock").write_text("")
    with pytest.raises(
        CredentialError, match=r"delete .*credentials\.json\.lock", check=has_code("credentials_not_saved")
    ):
        add(home)


def test_uncreatable_folder_is_an_error(home: Path) -> None:
    home.write_text("a file")
    with pytest.raises(CredentialError, match="cannot be written", check=has_code("credentials_not_saved")):
        add(home)


def _add_some(home: Path, first: int) -> None:
    for number in range(first, first + 10):
        add(home, CredentialEntry(f"c{number}", "variable", variable="X"))


def test_concurrent_changes_are_all_kept(home: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_add_some, args=(home, 100 * number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert len(read(home)) == 30
