"""`nexus serve` with wrong arguments: one line, an exit code, and no server."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from cli.running import run

MODEL = ("--base-url", "http://127.0.0.1:9/v1", "--model", "gpt-4o")

WRONG: dict[str, tuple[int, tuple[str, ...], str]] = {
    "remote address": (2, ("--host", "0.0.0.0", *MODEL), "--allow-remote"),
    "unknown address": (2, ("--host", "a..b", "--allow-remote", *MODEL), "unknown"),
    "no token file": (2, ("--token-file", "none", *MODEL), "token file none not readable"),
    "no workspace": (4, ("-w", "none", *MODEL), "nexus init"),
    "server without a model": (2, ("--base-url", "http://127.0.0.1:9/v1"), "--model"),
    "no key": (2, ("--model", "gpt-4o"), "OPENAI_API_KEY"),
    "variable that is not set": (2, (*MODEL, "--key-variable", "NO_SUCH_KEY"), "set NO_SUCH_KEY"),
    "port out of range": (2, ("--port", "70000", *MODEL), "70000"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_argument_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    code, arguments, text = WRONG[name]
    ran = run("serve", *arguments, folder=tmp_path)
    assert (ran.code, text in ran.err) == (code, True), ran.err
    assert "Traceback" not in ran.err and not ran.out.strip()


def test_port_in_use_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("serve", "--port", str(taken.getsockname()[1]), "--json", *MODEL, folder=tmp_path)
    assert ran.code == 2 and "use another port" in ran.err
    assert json.loads(ran.out)["error"]["type"] == "BadSetting"


def test_token_file_that_others_can_read_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    file = tmp_path / "tokens"
    file.write_text("a-token-of-some-length tenant\n", "utf-8")
    file.chmod(0o644)
    ran = run("serve", "--token-file", str(file), *MODEL, folder=tmp_path)
    assert ran.code == 2 and "chmod 600" in ran.err and "a-token" not in ran.err
