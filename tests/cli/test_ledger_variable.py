"""`NEXUS_LEDGER` names the ledger of every command, below `--ledger`."""

from __future__ import annotations

from pathlib import Path

import pytest

import nexus
from cli.running import run
from nexus.ledger.sqlite import SqliteLedger
from server.running import process


def store_session(file: Path, label: str) -> None:
    with nexus.open(ledger=SqliteLedger(str(file)), model="gpt-4o") as nx:
        nx.begin("Hi", session=label)


def labels(folder: Path, *arguments: str) -> list[str]:
    ran = run(*arguments, "--json", folder=folder)
    assert ran.code == 0, ran.err
    return [name for name in ("named", "workspace", "option") if f'"{name}"' in ran.out]


def test_variable_names_the_ledger_and_an_option_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NEXUS_LEDGER", raising=False)
    assert run("init", folder=tmp_path).code == 0
    for file, label in ((".nexus/ledger.db", "workspace"), ("named.db", "named"), ("option.db", "option")):
        store_session(tmp_path / file, label)
    assert labels(tmp_path, "sessions") == ["workspace"]
    monkeypatch.setenv("NEXUS_LEDGER", "")
    assert labels(tmp_path, "sessions") == ["workspace"]
    monkeypatch.setenv("NEXUS_LEDGER", "named.db")
    assert labels(tmp_path, "sessions") == ["named"]
    assert labels(tmp_path, "sessions", "--ledger", "option.db") == ["option"]
    assert run("session", "--ledger", "option.db", "show", "option", folder=tmp_path).code == 0, "before the subcommand"
    assert run("history", "named", folder=tmp_path).code == 0
    assert run("ledger", "verify", folder=tmp_path).code == 0
    monkeypatch.setenv("NEXUS_LEDGER", "none.db")
    ran = run("history", "named", folder=tmp_path)
    assert ran.code == 4 and "NEXUS_LEDGER" in ran.err
    assert not (tmp_path / "none.db").exists()


def test_server_reads_the_variable(tmp_path: Path) -> None:
    ledger = tmp_path / "shared.db"
    with (
        process(tmp_path, "--model", "gpt-4o", NEXUS_LEDGER=str(ledger)) as one,
        process(tmp_path, "--model", "gpt-4o", NEXUS_LEDGER=str(ledger)) as other,
    ):
        one.client().create_agent("a").begin("Hi")
        assert other.client().agent("a").get_messages().total == 1
    assert not (tmp_path / "workspace" / ".nexus" / "ledger.db").exists()
