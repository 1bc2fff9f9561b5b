"""`nexus ledger`: every job from the command line, with one clear line and an exit code where it cannot be done."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import apsw
import click
import pytest

import nexus
from cli.running import ESCAPE, environment, run
from ledger.stores import append
from nexus.assembly.record import with_sizes
from nexus.cli import ledger_command
from nexus.errors import LedgerFull
from nexus.ledger.sessions import NewQueuedEvent
from nexus.ledger.sqlite import SqliteLedger
from nexus.ledger.sqlite.schema import VERSION
from nexus.ledger.unrecorded_replies import UnrecordedReply
from nexus.testing.model_server import model_server, reply
from nexus.types.ledger_entries import Commit, NewEntry
from nexus.types.message import ToolCall, assistant, user

JOBS = [
    "backup",
    "doctor",
    "erase",
    "erase-tenant",
    "export",
    "import",
    "migrate",
    "repair",
    "restore",
    "stats",
    "trust",
    "vacuum",
    "verify",
]
FILE = Path(".nexus") / "ledger.db"


def sql(path: Path, *statements: str) -> None:
    db: Any = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement).fetchall()
    db.close()


def broken(folder: Path) -> Path:
    sql(folder / FILE, "UPDATE entry SET at_ms=at_ms+1 WHERE seq=9")
    return folder


def test_all_jobs_are_there_with_examples_and_take_the_common_options() -> None:
    assert sorted(ledger_command.command.commands) == JOBS
    for name, job in ledger_command.command.commands.items():
        assert {"--workspace", "--ledger", "--json"} <= {option for one in job.params for option in one.opts}
        shown = job.get_help(click.Context(job, info_name=f"nexus ledger {name}"))
        assert "Example: " in shown
        assert f"ledger {name}" in shown.rpartition("Example:")[2] or f" {name} " in shown.rpartition("Example:")[2]
        for one in job.params:
            if isinstance(one, click.Option):
                assert (one.help or "").endswith((".", "]", "].")), one.opts


@pytest.mark.parametrize("place", ["before", "after", "workspace", "here"])
def test_the_ledger_is_named_before_or_after_the_job_or_found_here(example: Path, tmp_path: Path, place: str) -> None:
    file = example / FILE
    args = {
        "before": ("ledger", "--ledger", file, "--json", "verify"),
        "after": ("ledger", "verify", "--ledger", file, "--json"),
        "workspace": ("ledger", "-w", example, "verify", "--json"),
        "here": ("ledger", "verify", "--json"),
    }[place]
    ran = run(*args, folder=example if place == "here" else tmp_path)
    assert ran.code == 0
    assert ran.json["sound"] is True
    assert ran.json["damages"] == []


def test_verify_reports_intact_ledger_or_lists_damage_with_exit_code_5(example: Path) -> None:
    ran = run("ledger", "verify", folder=example)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("is intact.\n")
    ran = run("ledger", "verify", folder=broken(example))
    assert ran.code == 5
    assert "entry 9 of thread 1 does not match its hash (lost: " in ran.out
    assert "nexus ledger repair" in ran.out
    ran = run("ledger", "verify", "--json", folder=example)
    (damage,) = [one for one in ran.json["damages"] if one["record"] == "entry"]
    assert (ran.code, ran.json["sound"], damage["thread"], damage["seq"]) == (5, False, 1, 9)


def test_cloned_ledger_is_read_only_until_trusted(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "another user"))
    (tmp_path / "own").mkdir()
    assert run("init", folder=tmp_path / "own").code == 0
    (example / FILE).chmod(0o644)
    (session, *_) = [one["label"] for one in run("sessions", "--json", folder=example).json]
    for command in (("history", session), ("ledger", "stats"), ("ledger", "verify")):
        assert run(*command, folder=example).code == 0
    assert "nexus ledger trust" in run("history", session, folder=example).err
    assert "trust: it came with its folder" in run("ledger", "doctor", folder=example).out
    for command in (("assemble", "Hello", "--session", session), ("session", "archive", session)):
        ran = run(*command, folder=example)
        assert (ran.code, ran.out) == (5, ""), command
        assert "was not made by this user" in ran.err
    assert run("assemble", "Hello", "--ledger", example / FILE, folder=example).code == 0
    run("ledger", "repair", "saved.db", folder=example)
    assert len(list((tmp_path / "another user" / "ledgers").glob("[0-9]*"))) == 1  # a repair makes nothing one's own
    assert "accepted; " in run("ledger", "trust", folder=example).out
    assert run("assemble", "Hello", "--session", session, folder=example).err == ""
    assert run("ledger", "trust", "--remove", "--json", folder=example).json["trusted"] is False
    assert run("assemble", "Hello", "--session", session, folder=example).code == 5


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_ledger_behind_a_link_is_neither_read_nor_written(example: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".nexus").symlink_to(example / ".nexus")
    for command in (("sessions",), ("assemble", "Hello"), ("ledger", "verify"), ("ledger", "export", "-"), ("init",)):
        ran = run(*command, folder=tmp_path / "w")
        assert (ran.code, ran.out) == (5, ""), command
        assert "leads out of the workspace" in ran.err


def test_more_damage_than_fits_on_a_screen_is_counted(example: Path) -> None:
    sql(example / FILE, "UPDATE entry SET at_ms=at_ms+1")
    ran = run("ledger", "verify", folder=example)
    whole = run("ledger", "verify", "--json", folder=example)
    assert f"and {len(whole.json['damages']) - ledger_command.SHOWN_DAMAGES:,} more" in ran.out
    assert len(ran.out.splitlines()) == ledger_command.SHOWN_DAMAGES + 3


def test_a_backup_is_made_restored_and_the_ledger_before_is_kept(example: Path) -> None:
    ran = run("ledger", "backup", "b.db", folder=example)
    assert ran.out == f"b.db: {(example / 'b.db').stat().st_size:,} bytes, verified.\n"
    broken(example)
    ran = run("ledger", "restore", "b.db", "--json", folder=example)
    assert ran.json["path"] == str(example / FILE)
    assert run("ledger", "verify", folder=example).code == 0
    assert run("ledger", "verify", "--ledger", ran.json["aside"], folder=example).code == 5
    ran = run("ledger", "restore", "b.db", folder=example)
    assert "Previous ledger: " in ran.out
    assert run("ledger", "backup", "b.db", "--force", "--json", folder=example).json["version"] == VERSION


def test_a_repair_saves_what_is_whole_and_says_what_was_lost(example: Path) -> None:
    ran = run("ledger", "repair", "new.db", folder=broken(example))
    assert ran.code == 0
    assert "1 entry lost" in ran.out
    assert "entry 9 of thread 1 is damaged" in ran.out
    assert "  main: " in ran.out
    assert run("ledger", "verify", "--ledger", "new.db", folder=example).code == 0
    shown = run("ledger", "repair", "new.db", "--force", "--json", folder=example).json
    assert shown["lost"] == 1
    assert shown["sessions"][0]["session"] == "main"
    assert run("history", "main", "--ledger", "new.db", folder=example).code == 0


def test_records_go_out_and_come_in_by_file_and_by_stream(example: Path, tmp_path: Path) -> None:
    assert run("ledger", "export", "all.jsonl", folder=example).code == 0
    streamed = run("ledger", "export", "-", folder=example)
    assert streamed.out == (example / "all.jsonl").read_text("utf-8")
    assert " entries, " in streamed.err
    ran = run("ledger", "import", example / "all.jsonl", "--ledger", "in/one.db", "--json", folder=tmp_path)
    assert ran.json["added"] == sum(ran.json["records"].values()) - 1
    ran = run("ledger", "import", "-", "--ledger", "in/two.db", folder=tmp_path, stdin=streamed.out.encode())
    assert f"{ran.out.rpartition('; ')[2].split()[0]}" != "0"
    ran = run("ledger", "import", example / "all.jsonl", "--ledger", "in/two.db", folder=tmp_path)
    assert ran.out.endswith("; 0 were new.\n")
    for name in ("one", "two"):
        again = run("ledger", "export", "-", "--ledger", f"in/{name}.db", folder=tmp_path)
        assert again.out == streamed.out


def test_figures_are_printed_and_the_same_as_json(example: Path) -> None:
    shown = run("ledger", "stats", "--json", folder=example).json
    text = run("ledger", "stats", folder=example).out
    assert f"entries      {shown['entries']:,}" in text
    assert f"messages     {shown['messages']:,}, {shown['tokens']:,} base tokens" in text
    assert shown["sessions"] == {"active": 1}
    assert run("sessions", "--json", folder=example).json[0]["messages"] == shown["messages"]


@pytest.mark.parametrize("at_ms", [-1, -(10**17), 10**17, 2**62], ids=str)
def test_commands_print_number_of_time_outside_calendar(empty: Path, at_ms: int) -> None:
    with nexus.open(workspace=empty) as nx:
        said = with_sizes([user("Hi", at_ms=at_ms), assistant("", ToolCall("c", "ping", "{}"))], nx.counter)
        nx.ledger.store.commit("old", Commit((NewEntry(messages=said, at_ms=at_ms, starts_turn=True),)))
    shown = "1969-12-31 23:59" if at_ms == -1 else f"[no time: {at_ms}]"
    assert f"from, to     {shown}, {shown}" in run("ledger", "stats", folder=empty).out
    for command in (("session", "turns", "old"), ("session", "calls", "old"), ("search", "hi"), ("sessions",),
                    ("session", "show", "old"), ("history", "old")):  # fmt: skip
        ran = run(*command, folder=empty)
        assert (ran.code, ran.err) == (0, "")
        if at_ms > 0 or command not in (("sessions",), ("session", "show", "old")):
            assert shown in ran.out.replace("1969-12-31T23:59", "1969-12-31 23:59")
    for command in (("context", "old"), ("assemble", "Hi", "-s", "old")):
        assert run(*command, folder=empty).code == 0


def test_figures_of_an_empty_ledger_say_that_nothing_happened(empty: Path) -> None:
    with nexus.open(workspace=empty):
        pass
    assert "from, to     never, never" in run("ledger", "stats", folder=empty).out


USAGE = [
    ({"usage": {"input_tokens": 2**62, "output_tokens": 3}}, 2**62),
    ({"usage": {"input_tokens": 2**62}}, 2**62),
    ({"usage": {"input_tokens": "many"}}, 0),
    ({"usage": {"input_tokens": 1.5, "output_tokens": None}}, 0),
    ({"usage": {"input_tokens": [3]}, "provider": {"a": 1}, "model": 7}, 0),
    ({"usage": "x"}, 0),
    ({"usage": None}, None),
    ({"model": "not\ud800asked"}, None),
    ({"usage": {"input_tokens": 10}, "model": "m\ud800"}, 10),
]


def test_figures_take_whatever_was_reported(empty: Path) -> None:
    with nexus.open(workspace=empty) as nx:
        for body, _ in USAGE:
            entry = NewEntry(messages=with_sizes([user("Hi")], nx.counter), starts_turn=True, body=body)
            nx.ledger.store.commit("main", Commit((entry,)))
    ran = run("ledger", "stats", "--json", folder=empty)
    assert ran.code == 0, ran.err
    usage = {(one["provider"], one["model"]): one for one in ran.json["usage"]}
    assert sum(one["calls"] for one in usage.values()) == sum(tokens is not None for _, tokens in USAGE)
    assert sum(one["input_tokens"] for one in usage.values()) == sum(tokens or 0 for _, tokens in USAGE)
    assert usage["", ""]["input_tokens"] == 2**63
    assert usage["", "m\ud800"]["input_tokens"] == 10
    assert "m\\ud800: 1 call" in run("ledger", "stats", folder=empty).out


@pytest.mark.parametrize(
    "command",
    [
        ("ledger", "export", "TARGET"), ("ledger", "export", "TARGET", "--force"), ("ledger", "backup", "TARGET", "--force"),
        ("ledger", "repair", "TARGET", "--force"), ("assemble", "Hi", "--save", "TARGET"), ("context", "--svg", "TARGET"),
    ],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["itself", "link", "log"])
def test_no_command_writes_over_the_ledger_that_it_reads(example: Path, command: tuple[str, ...], kind: str) -> None:
    target = {"itself": example / FILE, "link": example / "link.db", "log": example / f"{FILE}-wal"}[kind]
    if kind == "link":
        target.symlink_to(FILE)
    before = (example / FILE).read_bytes()
    ran = run(*(str(target) if one == "TARGET" else one for one in command), folder=example)
    if kind == "log" and command[0] != "ledger":
        assert ran.code == 0  # there is no log, and its name is no reason
    else:
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (4, "", 1)
        assert (example / FILE).read_bytes() == before


def test_a_ledger_of_this_version_needs_no_migration(example: Path) -> None:
    assert f"has the current version, {VERSION}." in run("ledger", "migrate", folder=example).out
    assert run("ledger", "migrate", "--dry-run", "--json", folder=example).json["dryRun"] is True


def test_doctor_prints_findings_and_fails_only_for_bad_ones(example: Path) -> None:
    ran = run("ledger", "doctor", folder=example)
    assert ran.code == 0, ran.out
    assert {line.split()[0] for line in ran.out.splitlines() if not line.startswith(" ")} <= {"ok", "warn"}
    assert ESCAPE not in ran.out
    shown = run("ledger", "doctor", "--json", folder=example).json
    assert shown["level"] in ("ok", "warn")
    assert {one["name"] for one in shown["findings"]} >= {"file system", "SQLite", "permissions", "clock"}
    os.link(example / FILE, example / "second.db")
    assert run("ledger", "doctor", folder=example).code == 5


CASES: list[tuple[tuple[str, ...], int, str]] = [
    (("verify",), 4, "is not there"), (("backup", "b.db"), 4, "is not there"), (("stats",), 4, "is not there"),
    (("export", "x.jsonl"), 4, "not found"), (("migrate",), 4, "is not there"), (("repair", "n.db"), 4, "is not there"),
    (("restore", "absent.db"), 4, "is not there"), (("import", "absent.jsonl"), 4, "not found"), (("doctor",), 5, ""),
    (("backup",), 2, "Missing argument"), (("nonsense",), 2, "No such command"),
]  # fmt: skip


@pytest.mark.parametrize(("args", "code", "says"), CASES)
def test_what_is_not_there_is_one_line_and_an_exit_code_and_makes_no_file(
    tmp_path: Path, args: tuple[str, ...], code: int, says: str
) -> None:
    ran = run("ledger", *args, "--ledger", "absent/l.db", folder=tmp_path)
    assert (ran.code, says in ran.err) == (code, True), ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith("nexus: ")]) == (code == 4)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file() and args[0] != "import"] == []


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("backup", "b.db"), 5, "entry 9 of thread 1"), (("export", "x.jsonl"), 5, "entry 9 of thread 1"),
        (("backup", FILE.as_posix()), 4, "a file of the ledger itself"), (("import", "junk"), 4, "junk line 1"),
        (("restore", "junk"), 5, "not a SQLite file"), (("repair", "junk"), 4, "exists and was not touched"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_why_as_text_and_as_json(
    example: Path, args: tuple[str, ...], code: int, says: str
) -> None:
    (broken(example) / "junk").write_text("no ledger at all " * 40)
    files = {file.name for file in example.iterdir()}
    ran = run("ledger", *args, folder=example)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    shown = run("ledger", *args, "--json", folder=example)
    assert shown.code == code
    assert says in json.loads(shown.out)["error"]["message"]
    assert {file.name for file in example.iterdir()} == files


def test_a_bar_is_shown_on_a_terminal_only_and_never_on_the_output(example: Path) -> None:
    mine, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "nexus", "ledger", "verify"],
        cwd=example, env=environment(TERM="xterm"), stdout=subprocess.PIPE, stderr=theirs, check=True,
    )  # fmt: skip
    os.close(theirs)
    assert b"Checking" in os.read(mine, 100_000)
    os.close(mine)
    assert done.stdout.endswith(b"is intact.\n")
    assert ESCAPE.encode() not in done.stdout


def test_waiting_reply_is_counted_until_it_is_recorded(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply's own program says where it is; the next one that opens the ledger records it."""

    def refuse(*_: object) -> None:
        raise LedgerFull("no space left")

    with model_server(reply("A paid reply.")) as server, monkeypatch.context() as patch:
        model = ("--base-url", server.openai_url, "-m", "gpt-4o")
        patch.setattr("nexus.engine.recorder.commit_patiently", refuse)
        failed = run("run", "A question?", *model, folder=empty)
    file = empty / ".nexus" / "ledger.db.unrecorded"
    assert failed.code == 5
    assert f"no space left; reply saved in '{file}' (the next program that opens the ledger records it" in failed.err
    verified = run("ledger", "verify", folder=empty).out
    assert "\n1 reply waits to be recorded: the next program that writes to the ledger does it.\n" in verified
    nexus.open(empty, home=empty).close()
    assert "recorded" not in run("ledger", "verify", folder=empty).out


def test_counts_of_erased_data_have_the_right_number(tmp_path: Path) -> None:
    place = ("--ledger", str(tmp_path / "l.db"))
    with nexus.open(ledger=place[1], home=tmp_path, model="gpt-4o") as nx:
        nx.begin("A question?", session="s", principal="ann")
        nx.unrecorded.add(UnrecordedReply("local", "s", 1, None, Commit(), principal="ann"))
    erase = ("ledger", "erase", "--principal", "ann", "--yes", *place)
    assert run(*erase, folder=tmp_path).out == (
        "Permanently deleted: 1 session with 1 message, 0 queued events, 0 documents, 1 unrecorded reply.\n"
    )
    again = run(*erase, folder=tmp_path)
    assert (again.code, again.out) == (2, "")
    assert again.err == f"nexus: no data of 'ann' found in {place[1]} (nothing was deleted)\n"


def test_a_tenants_data_is_taken_elsewhere_and_then_deleted_for_good(tmp_path: Path) -> None:
    file = tmp_path / "l.db"
    for tenant in ("acme", "other"):
        store = SqliteLedger(str(file), tenant=tenant)
        append(store, "main", user(f"the words of {tenant} are heliotrope"))
        store.close()
    place = ("--ledger", str(file))
    run("ledger", "export", str(tmp_path / "acme.jsonl"), "--tenant", "acme", *place, folder=tmp_path)
    refused = run("ledger", "erase-tenant", "acme", *place, folder=tmp_path)
    assert refused.code == 2 and "--yes" in refused.err
    erased = run("ledger", "erase-tenant", "acme", "--yes", "--json", *place, folder=tmp_path).json
    assert (erased["messages"], erased["found"]) == (1, 0)
    assert b"acme are heliotrope" not in file.read_bytes()
    assert run("ledger", "stats", "--tenant", "other", "--json", *place, folder=tmp_path).json["messages"] == 1
    place = ("--ledger", str(tmp_path / "elsewhere.db"))
    taken = run("ledger", "import", str(tmp_path / "acme.jsonl"), "--tenant", "acme", *place, folder=tmp_path)
    assert taken.code == 0
    assert run("ledger", "stats", "--tenant", "acme", "--json", *place, folder=tmp_path).json["messages"] == 1


def test_vacuum_frees_space_of_deleted_rows_and_keeps_the_rest(example: Path) -> None:
    run("session", "delete", "main", "--for-good", "--yes", folder=example)
    done = run("ledger", "vacuum", "--json", folder=example).json
    assert 0 < done["after_bytes"] <= done["before_bytes"]
    assert (example / FILE).stat().st_size == done["after_bytes"]
    told = run("ledger", "vacuum", folder=example)
    assert told.out.endswith(f": {done['after_bytes']:,} bytes before, {done['after_bytes']:,} now.\n")
    assert run("ledger", "verify", folder=example).code == 0


def test_export_and_stats_name_the_queued_events(tmp_path: Path) -> None:
    ledger = SqliteLedger(str(tmp_path / "l.db"))
    accepted = ledger.accept_events([NewQueuedEvent(id_, "main", "{}") for id_ in ("e1", "e2", "e3")])
    ledger.update_events([accepted[0].event.key], "done", expected=["queued"])
    ledger.close()
    assert "3 queued events" in run("ledger", "export", "l.jsonl", "--ledger", "l.db", folder=tmp_path).out
    assert "3, 2 queued or running" in run("ledger", "stats", "--ledger", "l.db", folder=tmp_path).out
    assert run("ledger", "stats", "--json", "--ledger", "l.db", folder=tmp_path).json["open_events"] == 2
