"""The TypeScript package against a real server, with Node.js alone. Its types are checked in test_typescript_npm.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from threading import Event

from nexus.testing.model_server import ModelRequest, Response, hang, model_server, reply
from server.running import TOKEN, process, running
from support.node import BIN, PACKAGE, node_environment, run_node

TESTS = PACKAGE / "test"
OTHER_TOKEN = "token-of-another-tenant"


def test_client(tmp_path: Path) -> None:
    with running(tmp_path, reply("A GIN index."), tokens={TOKEN: "local", OTHER_TOKEN: "other"}) as server:
        env = {"NEXUS_URL": server.url, "NEXUS_TOKEN": TOKEN, "OTHER_TOKEN": OTHER_TOKEN}
        run_node("--test", "--test-reporter=tap", TESTS / "client.test.js", env=env)


def test_stream_and_request_outlive_a_killed_server(tmp_path: Path) -> None:
    called = Event()

    def first_step(request: ModelRequest) -> Response:
        called.set()
        return hang()(request)

    with model_server(first_step, reply("A GIN index.")) as model:
        options = ("--base-url", model.openai_url, "--model", "gpt-4o")
        with process(tmp_path, *options) as first:
            port = first.url.rpartition(":")[2]
            program = subprocess.Popen(
                [str(BIN / "node"), str(TESTS / "restart.js")],
                env=node_environment({"NEXUS_URL": first.url, "NEXUS_TOKEN": first.token}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert called.wait(60)
        with process(tmp_path, *options, "--port", port):
            printed, errors = program.communicate("back\n", timeout=120)
    assert program.returncode == 0, errors
    result = json.loads(printed)
    assert result["failure"] == ["connection", True]
    assert "gap" in result["types"] and result["types"][-1] == "stream_end"
    assert result["answer"] == "A GIN index."
