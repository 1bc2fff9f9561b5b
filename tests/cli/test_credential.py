"""`nexus config credential`: what each command says, and that none ever says a value."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends import fail

from cli.conftest import Nexus
from cli.running import Ran, environment, run
from support.keyrings import Raising, Working
from support.skills import write_skill

CANARY = "canary-7f3a91"
OWN = "NEXUS_CREDENTIAL_TWITTER"


@pytest.fixture
def ring() -> Iterator[Working]:
    before = keyring.get_keyring()
    working = Working()
    keyring.set_keyring(working)
    yield working
    keyring.set_keyring(before)


@pytest.fixture
def nexus_here(empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ring: Working) -> Nexus:
    assert ring.values == {}
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    write_skill(empty, "social", requires={"credentials": ["twitter"]})

    def nexus(*args: str, stdin: bytes = b"") -> Ran:
        return run(*args, folder=empty, stdin=stdin)

    return nexus


def test_credential_value_from_stdin_excludes_last_line_break(nexus_here: Nexus, ring: Working) -> None:
    for given in (CANARY, f"{CANARY}\n", f"{CANARY}\r\n", f"\ufeff{CANARY}\n"):
        done = nexus_here("config", "credential", "set", "twitter", stdin=given.encode())
        assert (done.code, done.out, done.err) == (0, "Credential twitter: stored in the system's keyring.\n", "")
        assert list(ring.values.values()) == [CANARY]
    nexus_here("config", "credential", "set", "pem", stdin=b"-----BEGIN-----\nabc\n-----END-----\n")
    assert "-----BEGIN-----\nabc\n-----END-----" in ring.values.values()


def test_a_value_is_asked_for_on_a_terminal_and_not_echoed(tmp_path: Path) -> None:
    """In a program of its own, with a real terminal on its standard input and a keyring of the tests' own."""
    env = environment(NEXUS_HOME=str(tmp_path / "home"), PYTHON_KEYRING_BACKEND="support.keyrings.Working")
    env["PYTHONPATH"] += f":{Path(__file__).parents[1]}"
    near, far = pty.openpty()
    command = [sys.executable, "-m", "nexus", "config", "credential", "set", "twitter"]
    child = subprocess.Popen(command, cwd=tmp_path, env=env, stdin=far, stdout=far, stderr=far, start_new_session=True)
    os.close(far)
    seen = b""
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if select.select([near], [], [], 0.2)[0]:
            try:
                seen += os.read(near, 4096)
            except OSError:
                break
        elif child.poll() is not None:
            break
        if b"Value of twitter" in seen and CANARY.encode() not in env.get("sent", "").encode():
            os.write(near, f"{CANARY}\n".encode())
            env["sent"] = CANARY
    os.close(near)
    assert child.wait(600) == 0
    assert b"Value of twitter" in seen
    assert b"Credential twitter: stored in the system's keyring." in seen
    assert CANARY.encode() not in seen


@pytest.mark.parametrize("extra", [[CANARY], [f"--value={CANARY}"], ["--value", CANARY], [f"-p{CANARY}"]])
def test_a_value_as_an_argument_is_refused_and_not_repeated(nexus_here: Nexus, ring: Working, extra: list[str]) -> None:
    for json in ([], ["--json"]):
        done = nexus_here("config", "credential", "set", "twitter", *extra, *json)
        assert done.code == 2
        assert "value not stored: an argument would be visible" in done.err
        assert CANARY not in done.out + done.err
    assert ring.values == {}


HOSTILE = ["../../x", "a/b", "a\nb", "A_B", "x" * 300, "-", "sk-LIVE_abc", "\x1b[31m"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("args", [("set",), ("check",), ("check", "--ok"), ("remove",)], ids=" ".join)
def test_a_name_that_is_none_is_refused_and_not_repeated(nexus_here: Nexus, name: str, args: tuple[str, ...]) -> None:
    done = nexus_here("config", "credential", *args, "--", name, stdin=b"x")
    assert done.code == 2
    assert "invalid credential name" in done.err
    assert len(name) < 3 or name not in done.err


@pytest.mark.parametrize(
    ("value", "problem"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"a\0b", "NUL"), (b"\xff\xfe", "UTF-8"), (b"x" * 10_000_000, "longer")],
    ids=["none", "line", "nul", "bytes", "10 MB"],
)
def test_a_value_that_is_none_is_refused(nexus_here: Nexus, ring: Working, value: bytes, problem: str) -> None:
    done = nexus_here("config", "credential", "set", "twitter", stdin=value)
    assert (done.code, problem in done.err) == (2, True)
    assert ring.values == {}


def test_the_list_says_where_credentials_are_and_which_skills_want_them(
    nexus_here: Nexus, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nexus_here("config", "credential", "list").out.split("\n")[1].split() == ["twitter", "missing", "social"]
    nexus_here("config", "credential", "set", "github", stdin=CANARY.encode())
    monkeypatch.setenv(OWN, CANARY)
    rows = nexus_here("config", "credential", "list", "--json").json
    assert [(one["name"], one["where"], one["variable"], one["state"], one["skills"]) for one in rows] == [
        ("github", "keyring", "", "unchecked", []), ("twitter", "variable", OWN, "unchecked", ["social"])
    ]  # fmt: skip


def test_without_any_the_list_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    assert "nexus config credential set NAME" in run("config", "credential", "list", folder=tmp_path).out
    assert run("config", "credential", "list", "--json", folder=tmp_path).json == []
    done = run("config", "credential", "check", folder=tmp_path)
    assert (done.code, done.out) == (0, "No credentials to check.\n")


def test_a_check_fails_where_a_value_is_missing_or_marked_as_broken(nexus_here: Nexus, ring: Working) -> None:
    assert nexus_here("config", "credential", "check").code == 1
    nexus_here("config", "credential", "set", "twitter", stdin=b"x")
    assert nexus_here("config", "credential", "check").code == 0
    assert nexus_here("config", "credential", "check", "twitter", "--broken").code == 0
    done = nexus_here("config", "credential", "check", "twitter", "--json")
    assert (done.code, done.json[0]["state"]) == (1, "broken")
    assert nexus_here("config", "credential", "check", "twitter", "--ok").code == 0
    assert nexus_here("config", "credential", "check", "twitter").code == 0
    ring.values.clear()
    assert nexus_here("config", "credential", "check", "twitter").code == 1
    assert nexus_here("config", "credential", "check", "--ok").code == 2
    assert nexus_here("config", "credential", "check", "unknown").code == 2


def test_removing_says_whether_a_value_was_deleted(nexus_here: Nexus, ring: Working) -> None:
    nexus_here("config", "credential", "set", "twitter", stdin=b"x")
    done = nexus_here("config", "credential", "remove", "twitter")
    assert done.out == "Credential twitter: removed; its value is deleted.\n"
    assert ring.values == {}
    nexus_here("config", "credential", "set", "twitter", "--variable", "MY_KEY")
    assert nexus_here("config", "credential", "remove", "twitter", "--json").json == {
        "name": "twitter",
        "valueDeleted": False,
    }
    assert nexus_here("config", "credential", "remove", "twitter").code == 2


def test_without_a_keyring_the_error_names_the_ways_that_are_left(nexus_here: Nexus) -> None:
    keyring.set_keyring(fail.Keyring())
    done = nexus_here("config", "credential", "set", "twitter", stdin=CANARY.encode())
    assert done.code == 1
    assert "no usable system keyring" in done.err
    assert OWN in done.err
    assert "--variable" in done.err
    assert nexus_here("config", "credential", "set", "twitter", "--variable", "MY_KEY").out.endswith(
        "variable MY_KEY.\n"
    )


def test_a_variable_that_hides_a_stored_value_is_mentioned(nexus_here: Nexus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN, CANARY)
    assert f"{OWN} is set too" in nexus_here("config", "credential", "set", "twitter", stdin=b"x").err


def test_a_damaged_list_is_an_error_of_unreadable_input_and_stays(nexus_here: Nexus, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    file = tmp_path / "home" / "credentials.json"
    file.write_text("{")
    for args in (("list",), ("check",), ("set", "twitter"), ("remove", "twitter"), ("check", "twitter", "--ok")):
        done = nexus_here("config", "credential", *args, stdin=b"x")
        assert (done.code, "left unchanged" in done.err) == (4, True)
    assert file.read_text() == "{"
    done = nexus_here("status")
    assert (done.code, "left unchanged" in done.out) == (0, True)


def test_no_command_shows_a_value_or_leaves_it_in_a_file(
    nexus_here: Nexus, empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", CANARY)
    ran = [nexus_here("config", "credential", "set", "twitter", stdin=CANARY.encode())]
    ran.append(nexus_here("config", "credential", "set", "other", "--variable", "OTHER_KEY"))
    for own in (False, True):
        if own:
            monkeypatch.setenv(OWN, CANARY)
        for args in (
            ("config", "credential", "list"), ("config", "credential", "check"), ("config", "credential", "check", "twitter", "--broken"), ("status",),
            ("status", "--brief"), ("context",), ("assemble", "hi"), ("assemble", "hi", "--as", "text"), ("sessions",),
            ("assemble", "hi", "--save", "ctx.json"), ("config", "credential", "check", "none"), ("config", "credential", "remove", "other"),
        ):  # fmt: skip
            ran += [nexus_here(*args), nexus_here(*args, "--json")]
    keyring.set_keyring(Raising())
    ran += [
        nexus_here("config", "credential", "set", "x", stdin=CANARY.encode()),
        nexus_here("config", "credential", "remove", "twitter"),
    ]
    assert all(CANARY not in done.out + done.err for done in ran)
    assert any("1 broken (twitter)" in done.out for done in ran)
    files = [path for folder in (empty, tmp_path / "home") for path in folder.rglob("*") if path.is_file()]
    assert all(CANARY.encode() not in path.read_bytes() for path in files)
