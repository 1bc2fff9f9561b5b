"""Users' profiles: in the ledger by principal, and the local user's own file."""

from __future__ import annotations

import json
import math
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus
from cli.running import environment, run
from nexus.engine import Engine
from nexus.errors import BadSetting, UnreadableFile
from nexus.ledger.sqlite import SqliteLedger
from nexus.types.message import assistant
from nexus.types.user_profile import user_profile_text
from nexus.workspace.user_profiles import UserProfiles, import_files, old_file, overrides_of, with_override

ANN = {"friends_profile": "Ann likes haiku."}
PRINCIPALS = ["telegram:42", "../../x", "Ann", "a" * 500, "\ud800"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    (tmp_path / "ws").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def opened(home: Path | None = None, tenant: str = "local", path: Path | str = ":memory:") -> UserProfiles:
    return UserProfiles(SqliteLedger(path, tenant=tenant), home)


def friend(nx: Engine, **options: Any) -> str:
    ctx = nx.assemble("hi", profile="tagged", **options)
    return "\n".join(message.text() for message in ctx.messages)


@pytest.mark.parametrize("principal", ["", *PRINCIPALS])
def test_profile_is_read_again_and_an_empty_one_forgets_it(tmp_path: Path, principal: str) -> None:
    profiles = opened(tmp_path)
    assert profiles.read(principal) == ({}, ())
    profiles.put(principal, ANN)
    assert profiles.read(principal) == (ANN, ())
    assert profiles.read(f"{principal}2") == ({}, ())
    assert opened(tmp_path, "other").read(principal) == ((ANN if not principal else {}), ())
    files = [path.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert files == ([] if principal else ["user.json"])
    if not principal and sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "user.json").stat().st_mode) == 0o600
    profiles.put(principal, {})
    assert profiles.read(principal) == ({}, ())


def test_tenants_of_a_ledger_have_their_own_profiles(tmp_path: Path) -> None:
    one, two = (opened(None, tenant, tmp_path / "ledger.db") for tenant in ("one", "two"))
    one.put("ann", ANN)
    assert two.read("ann") == ({}, ())
    two.put("ann", {"learning": "Welsh"})
    assert one.read("ann") == (ANN, ())


@pytest.mark.usefixtures("home")
def test_home_of_an_engine_without_a_workspace_has_the_profile(tmp_path: Path) -> None:
    UserProfiles(SqliteLedger(":memory:"), tmp_path / "home").put("", {"friends_profile": "Somebody else."})
    UserProfiles(SqliteLedger(":memory:"), tmp_path).put("", ANN)
    with nexus.open(ledger=SqliteLedger(":memory:"), home=tmp_path, local_user=True) as nx:
        assert "Ann likes haiku." in friend(nx)
        assert "Somebody else." not in friend(nx)


def test_without_the_local_user_no_principal_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "user.json").write_text(json.dumps(ANN))
    profiles = opened()
    assert profiles.read("") == ({}, ()) and not profiles.may_have("") and profiles.may_have("ann")
    for change in (lambda: profiles.put("", ANN), lambda: profiles.change("", dict)):
        with pytest.raises(BadSetting, match="no principal"):
            change()


@pytest.mark.parametrize("principal", ["", "ann"])
@pytest.mark.parametrize(
    "wrong", ["text", None, [("a", "b")], {"a": b"x"}, {"a": {1: "x"}}, {"a": {"x"}}, {"a": math.nan}]
)
def test_profile_that_is_no_json_object_is_refused(tmp_path: Path, principal: str, wrong: Any) -> None:
    profiles = opened(tmp_path)
    profiles.put(principal, ANN)
    for write in (lambda: profiles.put(principal, wrong), lambda: profiles.change(principal, lambda _: wrong)):
        with pytest.raises(BadSetting, match=r"profile .*nothing was stored; pass a dict"):
            write()
    assert profiles.read(principal) == (ANN, ())


def test_text_without_utf8_form_is_stored_with_a_replacement() -> None:
    profiles = opened()
    profiles.put("ann", {"friends_profile": "a\ud800"})
    assert profiles.read("ann")[0] == {"friends_profile": "a\ufffd"}


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": 1' + "0" * 5_000_000])
def test_unusable_file_is_a_warning_and_no_profile(tmp_path: Path, text: str) -> None:
    (tmp_path / "user.json").write_text(text)
    profiles = opened(tmp_path)
    profile, (warning,) = profiles.read("")
    assert profile == {}
    assert warning.message.startswith("not used: ")
    with pytest.raises(UnreadableFile, match="not used"):
        profiles.change("", lambda _: ANN)
    assert (tmp_path / "user.json").read_text() == text
    profiles.put("", ANN)
    assert profiles.read("") == (ANN, ())


def test_file_that_cannot_be_written_raises_and_keeps_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(UnreadableFile):
        opened(tmp_path / "home").put("", ANN)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


WRITER = """
import sys
from pathlib import Path
from nexus.ledger.sqlite import SqliteLedger
from nexus.workspace.user_profiles import UserProfiles

path, home, principal, name = sys.argv[1:]
profiles = UserProfiles(SqliteLedger(path), Path(home))
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    profiles.change(principal, lambda profile: {**profile, f"{name}{number}": number})
"""


@pytest.mark.parametrize("principal", ["", "ann"])
def test_two_processes_that_change_a_profile_at_once_lose_nothing(tmp_path: Path, principal: str) -> None:
    ledger = tmp_path / "ledger.db"
    profiles = opened(tmp_path, path=ledger)
    command = [sys.executable, "-c", WRITER, ledger, tmp_path, principal]
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen([*command, name], stdin=pipe, stdout=pipe, text=True, env=environment()) for name in "ab"
    ]
    for writer in writers:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=300)
        assert writer.returncode == 0
    assert profiles.read(principal)[0] == {f"{name}{number}": number for name in "ab" for number in range(25)}


@pytest.mark.parametrize("principal", ["", "ann"])
def test_update_may_alter_the_profile_that_it_gets(tmp_path: Path, principal: str) -> None:
    def update(profile: dict[str, Any]) -> dict[str, Any]:
        profile.setdefault("likes", []).append("tea")
        return profile

    profiles = opened(tmp_path)
    for _ in range(2):
        profiles.change(principal, update)
    assert profiles.read(principal)[0] == {"likes": ["tea", "tea"]}


VALUES = st.sampled_from(["", "tea", ["tea", "maps"], {"content": "tea", "editable": True}, {"content": ""}, 7, None])
FIELDS = st.dictionaries(st.sampled_from(["friends_profile", "learning", "x"]), VALUES)


@given(FIELDS, FIELDS, st.sampled_from(["", "new words"]))
def test_law_override_is_what_contexts_show_and_other_fields_stay(
    top: dict[str, Any], inner: dict[str, Any], text: str
) -> None:
    profile = {**top, "prompt_overrides": inner}
    assert user_profile_text({"prompt_overrides": overrides_of(profile)})[0] == user_profile_text(profile)[0]
    changed = with_override(profile, "friends_profile", text)
    if text:
        assert user_profile_text(changed)[0] == text
    assert "friends_profile" not in overrides_of(changed) or text
    for name in ("learning", "x"):
        assert overrides_of(changed).get(name) == overrides_of(profile).get(name)
        assert changed.get(name) == profile.get(name)


# files of earlier versions ---------------------------------------------------------------------------------------------


@given(st.lists(st.text(), min_size=2, unique=True))
def test_principals_have_different_file_names_inside_the_folder(principals: list[str]) -> None:
    files = [old_file(Path("/h"), principal) for principal in principals]
    assert len({str(file).lower() for file in files}) == len(files)
    assert {file.parent for file in files} == {Path("/h/users")}
    assert all(len(file.name) <= 190 and file.name.isascii() and "\0" not in file.name for file in files)


def test_files_of_earlier_versions_are_imported_once_and_stay(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    for principal in PRINCIPALS:
        old_file(tmp_path, principal).write_text(json.dumps({"friends_profile": principal[:9]}))
    (tmp_path / "users" / "broken.json").write_text("{")
    (tmp_path / "users" / "No Principal.json").write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    profiles = opened()
    profiles.put("Ann", {"friends_profile": "of the ledger"})
    results = {row.principal: row.result for row in import_files(profiles, tmp_path) if row.principal}
    assert results.pop("broken").startswith("not used")
    assert results == {"telegram:42": "imported", "../../x": "imported", "Ann": "kept", "\ud800": "imported"}
    assert profiles.read("telegram:42")[0] == {"friends_profile": "telegram:"}
    assert profiles.read("Ann")[0] == {"friends_profile": "of the ledger"}
    profiles.put("telegram:42", {})
    assert {row.result for row in import_files(profiles, tmp_path) if row.principal != "broken" and row.principal} == {
        "kept"
    }
    assert profiles.read("telegram:42")[0] == {}, "forgotten, not imported again"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.json")} == before


def test_file_of_an_earlier_version_is_named_to_the_local_user_alone(home: Path) -> None:
    (home / "users").mkdir()
    old_file(home, "ann").write_text(json.dumps(ANN))
    ws = home.parent / "ws"
    with nexus.open(ws, ledger=":memory:") as nx:
        ctx = nx.assemble("hi", profile="tagged", principal="ann")
        assert not [warning for warning in ctx.warnings if "ann.json" in warning.source]
        assert "Ann likes" not in friend(nx, principal="ann")
    with nexus.open(ws, ledger=":memory:", local_user=True) as nx:
        ctx = nx.assemble("hi", profile="tagged", principal="ann")
        assert ["nexus services db import-profiles" in warning.message for warning in ctx.warnings] == [True]
        nx.user_profiles.change("ann", lambda profile: {**profile, "learning": "Welsh"})
        assert nx.user_profiles.read("ann")[0] == {**ANN, "learning": "Welsh"}
    ran = run("services", "db", "import-profiles", "--json", folder=ws)
    assert [(row["principal"], row["result"]) for row in ran.json] == [("ann", "imported")]
    options = ("--profile", "tagged", "--as", "text", "--principal", "ann")
    assert "Ann likes haiku." in run("assemble", "hi", *options, folder=ws).out


# the engine and the command line ---------------------------------------------------------------------------------------


def test_recorded_call_is_replayed_with_the_profile_that_it_had(home: Path) -> None:
    with nexus.open(home.parent / "ws", ledger=":memory:") as nx:
        nx.user_profiles.put("telegram:42", ANN)
        other = friend(nx, principal="telegram:42", user_profile={"learning": "Learns Welsh."})
        assert "Learns Welsh." in other and "Ann likes" not in other
        ctx = nx.assemble("hi", profile="tagged", principal="telegram:42")
        nx.record(ctx, nexus.AgentResult((assistant("hello"),)))
        nx.user_profiles.put("telegram:42", {"learning": "Moved."})
        assert nx.replay(ctx.session_label, 1).to_openai() == ctx.to_openai()


def test_session_of_a_person_shows_that_persons_profile_under_every_name_and_as_a_fork(home: Path) -> None:
    (home / "user.json").write_text(json.dumps({"friends_profile": "Operator."}))
    with nexus.open(home.parent / "ws", ledger=":memory:", local_user=True) as nx:
        nx.user_profiles.put("ann", ANN)
        ctx = nx.assemble("hi", profile="tagged", session="dm:ann")
        nx.record(ctx, nexus.AgentResult((assistant("hello"),)))
        nx.ledger.sessions.alias("phone", "dm:ann")
        nx.ledger.fork("copy", "dm:ann")
        for session in ("dm:ann", "phone", "copy"):
            text = friend(nx, session=session)
            assert "Ann likes haiku." in text and "Operator." not in text
        assert "Operator." in friend(nx, session="main") and "Operator." not in friend(nx, session="dm:bob")


def test_command_line_keeps_a_profile_for_later_calls(home: Path) -> None:
    ws = home.parent / "ws"
    (ws / "ann.txt").write_text("Ann likes tea.\n")
    (ws / "ann.json").write_text(json.dumps(ANN))
    (ws / "none.json").write_text("{}")
    (ws / "list.json").write_text("[]")
    plain = ("--profile", "tagged", "--as", "text")
    for options in (plain, (*plain, "--principal", "telegram:42"), (*plain, "--session", "dm:ann")):
        assert "Ann likes tea." in run("assemble", "hi", *options, "--user-profile", "ann.txt", folder=ws).out
        assert "Ann likes tea." in run("assemble", "hi", *options, folder=ws).out
        assert "Ann likes" not in run("assemble", "hi", *plain, "--principal", "other", folder=ws).out
        assert "Ann likes haiku" in run("assemble", "hi", *options, "--user-profile", "ann.json", folder=ws).out
        assert "Ann likes tea." not in run("assemble", "hi", *options, folder=ws).out
        assert "Ann likes" not in run("assemble", "hi", *options, "--user-profile", "none.json", folder=ws).out
        assert "Ann likes" not in run("assemble", "hi", *options, folder=ws).out
        for bad in ("list.json", "missing.txt"):
            ran = run("assemble", "hi", *options, "--user-profile", bad, folder=ws)
            assert (ran.code, ran.out) == (4, "")
    assert not (home / "users").exists()
    assert run("assemble", "--turn", "1", "--user-profile", "ann.txt", folder=ws).code == 2


def test_profile_set_by_one_command_is_shown_by_the_other(home: Path) -> None:
    """`nexus services db set` and `nexus assemble` have one profile for a user: the owner key is the principal."""
    ws = home.parent / "ws"
    (ws / "ada.txt").write_text("Ada likes tea.\n")
    options = ("--profile", "tagged", "--as", "text")
    assert run("services", "db", "set", "ada", "friends_profile", "Ada likes maps.", folder=ws).code == 0
    for named in (("--principal", "ada"), ("--session", "dm:ada")):
        assert "Ada likes maps." in run("assemble", "hi", *options, *named, folder=ws).out
    run("assemble", "hi", *options, "--principal", "ada", "--user-profile", "ada.txt", folder=ws)
    rows = {
        row["name"]: row["value"] for row in run("services", "db", "show", "--owner", "ada", "--json", folder=ws).json
    }
    assert rows["prompt_overrides.friends_profile"].strip() == "Ada likes tea."
    run("services", "db", "set", "ada", "friends_profile", "Ada likes trains.", folder=ws)
    shown = run("assemble", "hi", *options, "--principal", "ada", folder=ws).out
    assert "Ada likes trains." in shown and "Ada likes tea" not in shown
    run("services", "db", "set", "ada", "friends_profile", "", folder=ws)
    assert "Ada likes" not in run("assemble", "hi", *options, "--principal", "ada", folder=ws).out
    run("services", "db", "set", "ada", "friends_profile", "Ada likes ships.", folder=ws)
    assert run("services", "db", "forget", "ada", folder=ws).code == 0
    assert "Ada likes" not in run("assemble", "hi", *options, "--principal", "ada", folder=ws).out
    assert b"ships" not in (ws / ".nexus" / "ledger.db").read_bytes()
