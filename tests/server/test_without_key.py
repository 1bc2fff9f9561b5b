"""`nexus serve` without a key, or without a provider's package: it serves programs that call the model themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nexus.errors import ServerCallFailed
from nexus.testing.model_server import model_server, reply
from server.running import process


def without_package(folder: Path, name: str) -> str:
    """Return a PYTHONPATH with which a process does not find a package."""
    (folder / "blocked").mkdir()
    (folder / "blocked" / "sitecustomize.py").write_text(f"import sys; sys.modules[{name!r}] = None\n", "utf-8")
    return os.pathsep.join((str(folder / "blocked"), *filter(None, [os.environ.get("PYTHONPATH", "")])))


def test_missing_key_is_an_error_of_send_alone(tmp_path: Path) -> None:
    with process(tmp_path, "--model", "gpt-4o") as server:
        client = server.client()
        assert client.discover()["info"]["title"] == "Nexus"
        agent = client.create_agent("a")
        with pytest.raises(ServerCallFailed, match="set OPENAI_API_KEY") as caught:
            agent.send("Hi", "r1")
        assert caught.value.code == "no_credential"
        assert agent.get_messages().total == 0, "nothing was stored"
        agent.begin("Which index?")
        body = agent.assemble()
        assert body.body["messages"][-1]["content"]
        assert agent.record("A GIN index.", body.context_id).status == "completed"
        code, errors = server.stop()
    assert code == 0
    assert "no key for gpt-4o: set OPENAI_API_KEY" in errors
    assert "nexus chat" not in errors


def test_request_of_a_server_without_a_key_is_answered_by_one_with_a_key(tmp_path: Path) -> None:
    with process(tmp_path, "--model", "gpt-4o") as server:
        agent = server.client().create_agent("a")
        with pytest.raises(ServerCallFailed):
            agent.send("Hi", "r1")
    with model_server(reply("Hello.")) as model:
        options = ("--model", "gpt-4o", "--base-url", model.openai_url)
        with process(tmp_path, *options) as server:
            assert server.client().agent("a").send("Hi", "r1").content == "Hello."
    with process(tmp_path, "--model", "gpt-4o") as server:
        assert server.client().agent("a").send("Hi", "r1").content == "Hello.", "from the ledger"


def test_missing_package_is_named_with_its_extra(tmp_path: Path) -> None:
    path = without_package(tmp_path, "openai")
    with process(tmp_path, "--model", "gpt-4o", PYTHONPATH=path, OPENAI_API_KEY="sk-test") as server:
        agent = server.client().create_agent("a")
        with pytest.raises(ServerCallFailed, match="\\.\\[openai\\]") as caught:
            agent.send("Hi")
        assert caught.value.code == "package_missing"
        assert agent.begin("Hi").status == "pending"
        assert ".[openai]" in server.stop()[1]
    command = [sys.executable, "-m", "nexus", "serve", "-w", str(tmp_path / "workspace"), "--model", "gpt-4o"]
    ran = subprocess.run(
        [*command, "--base-url", "http://127.0.0.1:9/v1"],
        env={**os.environ, "PYTHONPATH": path, "NEXUS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2 and ".[server,openai]" in ran.stderr
    assert "Traceback" not in ran.stderr
