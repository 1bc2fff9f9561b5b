"""The access log and the error log: JSON lines with names, outcomes and times, and no content."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.running import run
from nexus.errors import ServerCallFailed
from nexus.server.forms import NoParams
from nexus.testing.model_server import fail, model_server, reply
from server.running import Process, process

WORDS = "heliotrope"
KEY = "sk-live-0123456789abcdefghijklmnop"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("ascii").splitlines()]


def test_each_request_is_one_line_without_content(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with model_server(reply(f"The word is {WORDS}.")) as model:
        options = ("--base-url", model.openai_url, "--model", "gpt-4o", "--access-log", str(log))
        with process(tmp_path, *options) as server:
            agent = server.client().create_agent("a", system=f"Never say {WORDS}.")
            agent.send(f"Say {WORDS}. My key is {KEY}.", "r1")
            with suppress(ServerCallFailed):
                server.client().agent(WORDS * 20 + "\n").send("Hi")
            server.get(f"/{WORDS}?token={KEY}")
            server.get("/metrics?x=" + KEY)
            server.get("/metrics", token=KEY)
            with suppress(ServerCallFailed):
                server.client().call(WORDS, NoParams(), dict[str, Any])
            server.stop()
    text = log.read_text("ascii")
    assert WORDS not in text and KEY not in text and server.token not in text
    rows = lines(log)
    create, send = rows[0], rows[1]
    assert (create["route"], create["status"], create["tenant"], create["peer"]) == ("/rpc", 200, "local", "127.0.0.1")
    assert [call["method"] for call in create["calls"]] == ["create_agent"]
    assert (send["route"], send["agent"], send["calls"][0]["method"]) == ("/agent/ID", "a", "send")
    assert all(row["seconds"] >= 0 and row["time"].endswith("Z") for row in rows)
    assert [row["status"] for row in rows[2:]] == [404, 404, 200, 401, 200]
    assert rows[-1]["calls"] == [
        {"method": "unknown", "error": "method_not_found", "seconds": rows[-1]["calls"][0]["seconds"]}
    ]
    assert log.stat().st_mode & 0o777 == 0o600


def test_failed_model_is_in_the_error_log_without_its_text(tmp_path: Path) -> None:
    with model_server(fail(401, f"wrong key {KEY} for {WORDS}")) as model:
        options = ("--base-url", model.openai_url, "--model", "gpt-4o")
        with process(tmp_path, *options) as server:
            agent = server.client().create_agent("a")
            with pytest.raises(ServerCallFailed):
                agent.send(f"Say {WORDS}.", "r1")
            _, errors = server.stop()
    (line,) = [json.loads(line) for line in errors.splitlines()]
    assert (line["level"], line["message"]) == ("warning", "model call failed: auth")
    assert (line["tenant"], line["agent"], line["model"], line["kind"]) == ("local", "a", "gpt-4o", "auth")
    assert WORDS not in errors and KEY not in errors


def wait_for_lines(log: Path, number: int) -> None:
    """Wait until a log has so many lines: a server writes the line of a request behind its answer."""
    for _ in range(3_000):
        if len(lines(log)) >= number:
            break
        time.sleep(0.02)
    assert len(lines(log)) == number


def test_two_servers_write_to_one_file_and_a_moved_file_is_opened_again(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    options = ("--model", "gpt-4o", "--access-log", str(log), "--error-log", str(tmp_path / "error.log"))

    def ask(server: Process) -> None:
        for _ in range(50):
            server.client().list_agents()

    with process(tmp_path, *options) as one, process(tmp_path, *options) as other, ThreadPoolExecutor(2) as pool:
        list(pool.map(ask, (one, other)))
        wait_for_lines(log, 100)
        log.rename(tmp_path / "access.log.1")
        ask(one)
        wait_for_lines(log, 50)
        one.process.kill()  # and the file is whole
        ask(other)
        wait_for_lines(log, 100)


def test_log_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path / "home"))
    ran = run("serve", "--access-log", "none/access.log", "--model", "gpt-4o", folder=tmp_path)
    assert ran.code == 2 and "none/access.log not writable" in ran.err and "Traceback" not in ran.err
