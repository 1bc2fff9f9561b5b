"""The doctor says what a ledger stands on, and what to do where that is not safe."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from cli.unwritable import program_without_rights
from ledger.stores import append, behind_its_back, filled
from ledger.test_maintenance import swapped
from nexus.ledger.maintenance.doctor import LOG_LIMIT, DoctorFinding, examine, has_log_bug, mount_of, worst_level
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.schema import VERSION
from nexus.types.message import user

NAMES = [
    "links", "file system", "SQLite", "permissions", "space", "processes", "log", "journal", "copies", "version", "journal mode",
    "structure", "clock",
]  # fmt: skip

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:50 / /mnt/share rw,relatime shared:5 - nfs4 server:/x rw,vers=4.2
41 27 0:51 / /mnt/with\040space rw - cifs //server/x rw
42 27 0:52 / /mnt/ssh rw - fuse.sshfs me@server: rw
43 27 0:53 / /mnt/strange rw - fuse.mergerfs x rw
44 27 0:54 / /mnt/wsl rw - 9p drvfs rw
45 27 0:55 / /mnt/mem rw - tmpfs tmpfs rw
46 27 0:56 / /mnt/dvd ro,relatime - iso9660 /dev/sr0 ro
47 27 0:57 / /mnt/share/local rw - xfs /dev/vdb rw
48 27 0:58 / /mnt/box rw - vboxsf box rw
49 27 0:59 / /var/lib/c rw - overlay overlay rw
not a line of it
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    filled(tmp_path / "l.db").close()
    (tmp_path / "l.db").chmod(0o600)
    return tmp_path / "l.db"


def finding(path: Path, name: str, **options: object) -> DoctorFinding:
    return next(found for found in examine(path, **options) if found.name == name)  # pyright: ignore[reportArgumentType]


def test_a_ledger_on_a_local_disk_is_well_and_stays_as_it_is(path: Path) -> None:
    before = path.read_bytes()
    findings = examine(path, mounts="27 1 254:0 / / rw - ext4 /dev/vda rw")
    assert [found.name for found in findings] == NAMES
    assert worst_level(findings) == "ok", findings
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["l.db"]


def test_every_finding_that_is_not_well_says_what_to_do(path: Path) -> None:
    path.chmod(0o666)
    for found in (*examine(path, mounts=MOUNTS, now_ms=0), *examine(path.with_name("absent"))):
        assert found.what
        assert found.do or found.level == "ok"


def test_a_ledger_that_is_not_there_is_bad(tmp_path: Path) -> None:
    (found,) = examine(tmp_path / "absent")
    assert (found.level, found.name) == ("bad", "file")


@pytest.mark.parametrize(
    ("path", "kind", "at"),
    [
        ("/home/you/l.db", "ext4", "/"), ("/mnt/share/l.db", "nfs4", "/mnt/share"), ("/mnt/shared/l.db", "ext4", "/"),
        ("/mnt/share/local/l.db", "xfs", "/mnt/share/local"), ("/mnt/with space/a/l.db", "cifs", "/mnt/with space"),
        ("/mnt/share", "nfs4", "/mnt/share"),
    ],
)  # fmt: skip
def test_the_mount_of_a_path_is_the_deepest_that_holds_it(path: str, kind: str, at: str) -> None:
    found = mount_of(path, MOUNTS)
    assert found is not None
    assert (found.kind, found.at) == (kind, at)
    assert mount_of(path, "") is None


@pytest.mark.parametrize(
    ("kind", "options", "level", "says"),
    [
        ("nfs", "rw", "bad", "not safe"), ("nfs4", "rw", "bad", "not safe"), ("cifs", "rw", "bad", "not safe"),
        ("smb3", "rw", "bad", "not safe"), ("9p", "rw", "bad", "not safe"), ("fuse.sshfs", "rw", "bad", "not safe"),
        ("vboxsf", "rw", "bad", "not safe"), ("fuse.glusterfs", "rw", "bad", "not safe"),
        ("fuse.mergerfs", "rw", "warn", "not known"), ("fuseblk", "rw", "warn", "not known"),
        ("tmpfs", "rw", "warn", "gone after a restart"), ("overlay", "rw", "warn", "gone with the container"),
        ("ext4", "ro,noatime", "bad", "reading only"), ("ext4", "rw", "ok", "ext4 at /"), ("btrfs", "rw", "ok", "btrfs"),
    ],
)  # fmt: skip
def test_doctor_rates_file_systems_by_locks_and_shared_memory(
    path: Path, kind: str, options: str, level: str, says: str
) -> None:
    found = finding(path, "file system", mounts=f"27 1 254:0 / / {options} - {kind} source {options}")
    assert found.level == level
    assert says in found.what


def test_doctor_warns_of_an_unknown_mount(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(path, "file system", mounts="").level == "warn"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "not known" in finding(path, "file system").what


def test_this_machines_mounts_are_read(path: Path) -> None:
    wanted = " at /" if sys.platform.startswith("linux") else "not known"
    assert wanted in finding(path, "file system").what


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ("3.6.23", False), ("3.7.0", True), ("3.40.1", True), ("3.44.5", True), ("3.44.6", False), ("3.45.0", True),
        ("3.50.4", True), ("3.50.6", True), ("3.50.7", False), ("3.51.0", True), ("3.51.2", True), ("3.51.3", False),
        ("3.54.1", False), ("4.0.0", False),
    ],
)  # fmt: skip
def test_versions_of_sqlite_that_can_lose_commits_are_known(version: str, affected: bool) -> None:
    assert has_log_bug(version) is affected


def test_bundled_sqlite_has_no_log_bug(path: Path) -> None:
    assert finding(path, "SQLite").level == "ok"


def test_a_second_name_and_a_link_are_reported(path: Path) -> None:
    path.with_name("link.db").symlink_to(path)
    assert finding(path.with_name("link.db"), "links").level == "warn"
    assert finding(path, "links").level == "ok"
    path.with_name("second.db").hardlink_to(path)
    found = finding(path, "links")
    assert (found.level, "2 names" in found.what) == ("bad", True)


def test_doctor_warns_of_a_world_readable_ledger_when_it_is_reachable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.chmod(0o644)
    for folder in (path.parent, *path.parent.parents):
        if folder.stat().st_mode & 0o001 == 0:
            break
    else:
        folder = None
    assert finding(path, "permissions").level == ("warn" if folder is None else "ok")
    path.parent.chmod(0o700)
    assert finding(path, "permissions").level == "ok"
    path.parent.chmod(0o777)
    assert "everyone may replace files" in finding(path, "permissions").what
    path.parent.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert "belongs to user" in finding(path, "permissions").what


def test_a_ledger_that_cannot_be_written_is_bad(path: Path) -> None:
    path.chmod(0o400)
    ran = program_without_rights("ledger", "doctor", "--ledger", path, folder=path.parent)
    path.chmod(0o600)
    assert ran.returncode == 5, ran.stderr
    assert b"bad  permissions: the ledger cannot be written by this user" in ran.stdout


Usage = namedtuple("Usage", "total used free")  # noqa: PYI024 - as shutil has it


@pytest.mark.parametrize(
    ("free", "size", "level"),
    [(49 << 20, 1 << 20, "bad"), (51 << 20, 1 << 20, "ok"), (60 << 20, 700 << 20, "warn"), (80 << 20, 700 << 20, "ok")],
)
def test_little_room_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch, free: int, size: int, level: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, free))
    os.truncate(path, size)
    assert finding(path, "space").level == level


def test_doctor_reports_little_space_and_an_oversized_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert finding(path, "log").level == "ok"
    log = path.with_name("l.db-wal")
    log.touch()
    os.truncate(log, 2 * LOG_LIMIT + 1)
    assert finding(path, "log").level == "warn"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, 100 << 20))
    assert finding(path, "space").level == "bad"


def test_a_journal_that_is_left_is_a_warning(path: Path) -> None:
    path.with_name("l.db-journal").write_bytes(b"x")
    assert finding(path, "journal").level == "warn"


def test_ledger_opened_before_a_process_fork_raises(path: Path) -> None:
    ledger = SqliteLedger(str(path))
    assert finding(path, "processes").level == "ok"
    reading, writing = os.pipe()
    with ledger.snapshot():
        child = os.fork()
        if not child:
            os.write(writing, finding(path, "processes").level.encode())
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 10) == b"bad"
    os.close(reading)
    os.close(writing)
    ledger.close()


def test_doctor_reports_other_files_and_versions_with_advice(path: Path) -> None:
    with behind_its_back(path) as db:
        db.execute("PRAGMA user_version=1")
    assert finding(path, "version").level == "warn"
    with behind_its_back(path) as db:
        db.execute(f"PRAGMA user_version={VERSION + 1}")
    found = finding(path, "content")
    assert f"version {VERSION + 1}" in found.what
    assert found.do.startswith("upgrade Nexus; the ledger is not damaged")
    with behind_its_back(path) as db:
        db.execute("PRAGMA application_id=7")
    found = finding(path, "content")
    assert "another program" in found.what
    assert found.do.startswith("name the ledger's own file")
    path.write_text("no database " * 50)
    found = finding(path, "content")
    assert (found.level, "not a SQLite file" in found.what) == ("bad", True)
    assert "nexus ledger repair" in found.do
    path.write_bytes(b"")
    found = finding(path, "content")
    assert (found.level, "is empty" in found.what) == ("bad", True)
    assert path.read_bytes() == b""


def test_what_is_no_file_is_named_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    for name, says in (
        ("", "is a folder"), ("pipe", "is no regular file"), ("link", "is a link to"), ("absent", "is not there"),
        ("pipe/x", "is not there"), ("x" * 300, "cannot be looked at: File name too long"),
    ):  # fmt: skip
        (found,) = examine(tmp_path / name)
        assert (found.level, found.name) == ("bad", "file")
        assert says in found.what
        assert "--ledger" in found.do


def test_verify_checks_a_ledger_with_swapped_pages_to_the_end(path: Path) -> None:
    swapped(path, "entry", "session_move")
    assert worst_level(examine(path)) == "bad"
    assert finding(path, "clock").level == "ok"


def test_another_journal_mode_is_a_warning(path: Path) -> None:
    with behind_its_back(path) as db:
        db.execute("PRAGMA journal_mode=DELETE").fetchall()
    found = finding(path, "journal mode")
    assert (found.level, found.what) == ("warn", "delete")


def test_a_broken_page_is_bad(path: Path) -> None:
    data = bytearray(path.read_bytes())
    with behind_its_back(path) as db:
        page = db.execute("SELECT rootpage FROM sqlite_schema WHERE name='message'").fetchone()[0]
    data[(page - 1) * 4_096 : page * 4_096] = b"\xff" * 4_096
    path.write_bytes(data)
    assert worst_level(examine(path)) == "bad"


def test_a_clock_before_the_newest_entry_is_a_warning(path: Path) -> None:
    ledger = SqliteLedger(str(path))
    append(ledger, "later", user("x"), at_ms=10_000_000)
    ledger.close()
    assert finding(path, "clock", now_ms=9_000_000).level == "warn"
    assert "1,000 seconds in the future" in finding(path, "clock", now_ms=9_000_000).what
    assert finding(path, "clock", now_ms=9_900_000).level == "ok"
    assert finding(path, "clock", now_ms=time.time_ns() // 1_000_000).level == "ok"


def test_worst_level_is_the_most_severe() -> None:
    well, warned, ill = DoctorFinding("ok", "a", "b"), DoctorFinding("warn", "a", "b"), DoctorFinding("bad", "a", "b")
    assert [worst_level(found) for found in ([well], [well, warned], [warned, ill, well])] == ["ok", "warn", "bad"]
