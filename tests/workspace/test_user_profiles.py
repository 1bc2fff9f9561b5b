"""The user's profile, kept per principal in the user's folder."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from cli.running import run
from nexus.engine import Engine
from nexus.errors import UnreadableFile
from nexus.types.message import assistant
from nexus.workspace.user_profiles import keep_profile, profile_file, read_profile

ANN = {"friends_profile": "Ann likes haiku."}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    return tmp_path / "home"


def friend(nx: Engine, **options: Any) -> str:
    ctx = nx.assemble("hi", profile="tagged", **options)
    return "\n".join(message.text() for message in ctx.messages)


@given(st.lists(st.text(), min_size=2, unique=True))
def test_principals_have_different_file_names_inside_the_folder(principals: list[str]) -> None:
    files = [profile_file(Path("/h"), principal) for principal in principals]
    assert len({str(file).lower() for file in files}) == len(files)
    assert {file.parent for file in files} <= {Path("/h"), Path("/h/users")}
    assert all(len(file.name) <= 190 and file.name.isascii() and "\0" not in file.name for file in files)


@pytest.mark.parametrize("principal", ["", "telegram:42", "../../x", "Ann", "a" * 500, "\ud800"])
def test_kept_profile_is_read_again_and_an_empty_one_removes_it(tmp_path: Path, principal: str) -> None:
    assert read_profile(tmp_path, principal) == ({}, ())
    file = keep_profile(tmp_path, principal, ANN)
    assert read_profile(tmp_path, principal) == (ANN, ())
    assert read_profile(tmp_path, f"{principal}2") == ({}, ())
    if sys.platform != "win32":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    keep_profile(tmp_path, principal, {})
    assert read_profile(tmp_path, principal) == ({}, ())


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1' + "0" * 5_000_000])
def test_unusable_file_is_a_warning_and_no_profile(tmp_path: Path, text: str) -> None:
    profile_file(tmp_path, "").write_text(text)
    profile, (warning,) = read_profile(tmp_path, "")
    assert profile == {}
    assert warning.message.startswith("not used: ")


def test_file_that_cannot_be_written_raises_and_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("a file")
    with pytest.raises(UnreadableFile, match="not written"):
        keep_profile(tmp_path, "ann", ANN)
    assert [path.name for path in tmp_path.iterdir()] == ["users"]


def test_engine_shows_the_kept_profile_of_the_principal_only(home: Path) -> None:
    keep_profile(home, "telegram:42", ANN)
    with nexus.open(home.parent / "ws", ledger=":memory:") as nx:
        assert "Ann likes haiku." in friend(nx, principal="telegram:42")
        assert "Ann likes" not in friend(nx, principal="telegram:43")
        assert "Ann likes" not in friend(nx)
        other = friend(nx, principal="telegram:42", user_profile={"learning": "Learns Welsh."})
        assert "Learns Welsh." in other
        assert "Ann likes" not in other
        ctx = nx.assemble("hi", profile="tagged", principal="telegram:42")
        nx.record(ctx, nexus.AgentResult((assistant("hello"),)))
        keep_profile(home, "telegram:42", {"learning": "Moved."})
        assert nx.replay(ctx.session_label, 1).to_openai() == ctx.to_openai()


def test_command_line_keeps_a_profile_for_later_calls(home: Path) -> None:
    ws = home.parent / "ws"
    (ws / "ann.txt").write_text("Ann likes tea.\n")
    (ws / "ann.json").write_text(json.dumps(ANN))
    options = ("--profile", "tagged", "--as", "text", "--principal", "telegram:42")
    assert "Ann likes tea." in run("assemble", "hi", *options, "--user-profile", "ann.txt", folder=ws).out
    assert "Ann likes tea." in run("assemble", "hi", *options, folder=ws).out
    assert "Ann likes tea." not in run("assemble", "hi", *options[:-2], folder=ws).out
    assert "Ann likes haiku" in run("assemble", "hi", *options, "--user-profile", "ann.json", folder=ws).out
    assert "Ann likes tea." not in run("assemble", "hi", *options, folder=ws).out
    (ws / "none.json").write_text("{}")
    assert "Ann likes" not in run("assemble", "hi", *options, "--user-profile", "none.json", folder=ws).out
    assert "Ann likes haiku" not in run("assemble", "hi", *options, folder=ws).out
    assert os.listdir(home / "users") == []  # noqa: PTH208 - names alone
    (ws / "list.json").write_text("[]")
    for bad, code in (("list.json", 4), ("missing.txt", 4)):
        ran = run("assemble", "hi", *options, "--user-profile", bad, folder=ws)
        assert (ran.code, ran.out) == (code, "")
    assert run("assemble", "--turn", "1", "--user-profile", "ann.txt", folder=ws).code == 2
