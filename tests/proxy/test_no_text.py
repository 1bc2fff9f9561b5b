"""`no_text`: sizes, usage and hashes reach the disk, and not one byte of any text."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from nexus.errors import BadSetting
from nexus.proxy.settings import read_settings
from nexus.testing.model_server import break_stream, model_server, reply, respond
from nexus.types.message import ToolCall
from proxy.running import RunningProxy, running_proxy
from proxy.test_commands import nexus as command
from proxy.test_commands import proxy_process
from proxy.test_faults import wait_until
from proxy.test_formats import FORMATS, request_of
from proxy.upstream import upstream

SYSTEM, SAID, EARLIER, TOOL, PARAMETER, ANSWER, ARGUMENT, RESULT, KEY, REFUSAL = (
    f"canary-{name}-of-the-{thing}"
    for name, thing in zip(
        ("crow", "finch", "heron", "lark", "robin", "swift", "tern", "wren", "kite", "rook"),
        ("moor", "hill", "lake", "field", "garden", "tower", "coast", "hedge", "sky", "wood"),
        strict=True,
    )
)
"""Parts of requests and answers that exist nowhere else."""

CANARIES = (SYSTEM, SAID, EARLIER, TOOL, PARAMETER, ANSWER, ARGUMENT, RESULT, KEY, REFUSAL)
MODES: tuple[dict[str, Any], ...] = ({"no_text": True}, {"no_text": True, "mode": "heal"})


def canary_request(format_: str, *, stream: bool) -> tuple[str, dict[str, Any]]:
    """Return a request with a canary in each part that has text."""
    path, body = request_of(format_, [EARLIER, "Well.", SAID], stream=stream)
    schema = {"type": "object", "description": PARAMETER, "properties": {PARAMETER: {"type": "string"}}}
    match format_:
        case "anthropic":
            call = {"type": "tool_use", "id": "toolu_1", "name": TOOL, "input": {PARAMETER: ARGUMENT}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": RESULT}
            body["messages"][1:1] = [
                {"role": "assistant", "content": [call]},
                {"role": "user", "content": [result]},
            ]
            body |= {"system": SYSTEM, "tools": [{"name": TOOL, "description": TOOL, "input_schema": schema}]}
            body["metadata"] = {"user_id": KEY}
        case "openai":
            function = {"name": TOOL, "arguments": json.dumps({PARAMETER: ARGUMENT})}
            body["messages"][2:2] = [
                {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": "call_1", "content": RESULT},
            ]
            if stream:
                body["stream_options"] = {"include_usage": True}
            body["messages"][0]["content"] = SYSTEM
            body["tools"] = [{"type": "function", "function": {"name": TOOL, "parameters": schema}}]
            body["prompt_cache_key"] = KEY
        case "responses":
            arguments = json.dumps({PARAMETER: ARGUMENT})
            body["input"][1:1] = [
                {"type": "function_call", "call_id": "call_1", "name": TOOL, "arguments": arguments},
                {"type": "function_call_output", "call_id": "call_1", "output": RESULT},
            ]
            body |= {"instructions": SYSTEM, "tools": [{"type": "function", "name": TOOL, "parameters": schema}]}
            body["prompt_cache_key"] = KEY
        case _:
            body["contents"][1:1] = [
                {"role": "model", "parts": [{"functionCall": {"name": TOOL, "args": {PARAMETER: ARGUMENT}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": TOOL, "response": {"result": RESULT}}}]},
            ]
            body["systemInstruction"] = {"parts": [{"text": SYSTEM}]}
            body["tools"] = [{"functionDeclarations": [{"name": TOOL, "parameters": schema}]}]
            body["labels"] = {"key": KEY}
    return path, body


def canaries_on_disk(folder: Path) -> set[str]:
    """Return the canaries that any file below a folder has, in any case, and also without their hyphens."""
    found: set[str] = set()
    for file in folder.rglob("*"):
        if not file.is_file() or file.suffix == ".table":  # the tokenizer's vocabulary has the names of birds
            continue
        data = file.read_bytes().lower()
        for canary in CANARIES:
            if any(part.encode() in data for part in (canary, *canary.split("-")[1:2])):
                found.add(f"{canary} in {file.name}")
    return found


def post(running: RunningProxy, path: str, data: bytes, **headers: str) -> tuple[str, bytes]:
    """Return the id of a call, and what its client received of the answer."""
    pieces: list[bytes] = []
    call_id = ""
    try:
        with httpx.stream(
            "POST", running.url + path, content=data, headers=headers, trust_env=False, timeout=60
        ) as answer:
            call_id = answer.headers["x-nexus-call"]
            pieces += answer.iter_raw()
    except httpx.RemoteProtocolError:
        pass
    return call_id, b"".join(pieces)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """The log as a file among those that are searched, with every message of every package."""
    handler = logging.FileHandler(tmp_path / "log")
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield tmp_path / "log"
    root.removeHandler(handler)
    root.setLevel(level)
    handler.close()


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("settings", MODES, ids=["record", "heal"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("format_", FORMATS)
def test_no_byte_of_any_text_is_on_the_disk(
    format_: str, stream: bool, settings: dict[str, Any], tmp_path: Path
) -> None:
    path, body = canary_request(format_, stream=stream)
    answer = reply(ANSWER, ToolCall("call_9", TOOL, json.dumps({PARAMETER: ARGUMENT})))
    refusal = respond(400, {"error": {"message": f"{REFUSAL}: {SAID}"}})
    steps = (answer, refusal, break_stream(answer, "disconnect", after=2), break_stream(answer, "malformed", after=2))
    broken_list = json.dumps(body).replace("Well.", "").encode()
    with model_server(*steps, answer) as provider, running_proxy(provider, tmp_path / "l.db", **settings) as running:
        ids: list[str] = []
        for data in (*[json.dumps(body).encode()] * 4, broken_list):
            ids.append(judged(running, path, data)["id"])
        first, refused, *_ = map(running.call, ids)
        assert first["usage"]["output_tokens"] > 0
        assert first["cost_usd"] > 0
        assert (refused["status"], refused["error"]) == (400, "status 400")
        assert canaries_on_disk(tmp_path) == set()  # with the log of the database
    assert canaries_on_disk(tmp_path) == set()
    with nexus.open(ledger=tmp_path / "l.db") as nx:
        assert nx.sessions(include_inactive=True) == []
        assert len(nx.ledger.store.documents("proxy_call")) == 5


@pytest.mark.usefixtures("log")
@pytest.mark.parametrize("settings", MODES, ids=["record", "heal"])
@pytest.mark.parametrize("format_", FORMATS)
def test_bodies_that_cannot_be_read_leave_hashes(format_: str, settings: dict[str, Any], tmp_path: Path) -> None:
    path, body = canary_request(format_, stream=False)
    text = json.dumps(body)
    with upstream([]) as url, running_proxy(url, tmp_path / "l.db", **settings) as running:
        for data in (f'{{"{SAID}', f'["{SAID}"]', f'{{"messages": "{SAID}", "contents": 5}}', text[:-30]):
            judged(running, path, data.encode())
        judged(running, path, gzip.compress(text.encode()), **{"content-encoding": "gzip"})
        judged(running, path, gzip.compress(text.encode())[:-30], **{"content-encoding": "gzip"})
        judged(running, path, text.encode(), **{"content-encoding": SAID})
    assert canaries_on_disk(tmp_path) == set()


def judged(running: RunningProxy, path: str, data: bytes, **headers: str) -> dict[str, Any]:
    """Return the report of a call, which has sizes and hashes of what went through, and no session."""
    call_id, received = post(running, path, data, **headers)
    wait_until(lambda: running.call(call_id)["request_sha256"] != "")
    call = running.call(call_id)
    assert call["request_sha256"] == hashlib.sha256(data).hexdigest()
    assert (call["answer_bytes"], call["received_bytes"]) == (len(received), len(data))
    assert call["answer_sha256"] == hashlib.sha256(received).hexdigest()
    assert (call["session"], call["thread"]) == ("", 0)
    return call


def test_search_of_the_files_finds_a_text_that_is_recorded(tmp_path: Path) -> None:
    path, body = canary_request("anthropic", stream=False)
    with model_server(reply(ANSWER)) as provider, running_proxy(provider, tmp_path / "l.db") as running:
        post(running, path, json.dumps(body).encode())
    found = {text.partition(" in ")[0] for text in canaries_on_disk(tmp_path)}
    assert {SYSTEM, SAID, EARLIER, TOOL, PARAMETER, ANSWER, ARGUMENT, RESULT} <= found


@pytest.mark.parametrize("settings", MODES, ids=["record", "heal"])
def test_large_answer_leaves_its_hash(settings: dict[str, Any], tmp_path: Path) -> None:
    path, body = canary_request("openai", stream=False)
    with (
        model_server(reply(f"{ANSWER} " * 1_500_000)) as provider,
        running_proxy(provider, tmp_path / "l.db", **settings) as running,
    ):
        call = judged(running, path, json.dumps(body).encode())
    assert call["reasons"][-1:] == ["usage not read: the answer has more than 32 MiB"]
    assert canaries_on_disk(tmp_path) == set()


def test_same_key_of_the_cache_is_one_conversation_and_not_readable(tmp_path: Path) -> None:
    path, body = canary_request("openai", stream=False)
    with model_server(reply("ok")) as provider, running_proxy(provider, tmp_path / "l.db", no_text=True) as running:
        for _ in range(2):
            post(running, path, json.dumps(body).encode())
        wait_until(lambda: running.get("/nexus/status").json()["counts"].get("without text") == 2)
        status = running.get("/nexus/status").json()
        metrics = running.get("/nexus/metrics").text
    (conversation,) = status["conversations"]
    assert conversation["calls"] == 2
    assert conversation["conversation"] == hashlib.sha256(KEY.encode()).hexdigest()
    assert "not recorded" not in status["counts"]
    assert "nexus_proxy_unrecorded_calls_total 0.0" in metrics


def test_fit_and_no_text_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="mode fit needs the ledger"):
        read_settings(None, {"mode": "fit", "budget": 9_000, "no_text": True})
    ended = command(tmp_path, "proxy", "--budget", "9000", "--no-text")
    assert (ended.returncode, "mode fit needs the ledger" in ended.stderr) == (2, True)
    with (
        model_server(reply("ok")) as provider,
        running_proxy(provider, no_text=True, budget=9_000) as running,
    ):
        answer = running.set_mode("fit")
        assert (answer.status_code, "mode fit needs the ledger" in answer.text) == (400, True)
        assert running.set_mode("heal").status_code == 200


def test_people_are_told_that_there_is_no_text(tmp_path: Path) -> None:
    path, body = canary_request("anthropic", stream=True)
    log = str(tmp_path / "proxy.log")
    with (
        model_server(reply(ANSWER)) as provider,
        proxy_process(tmp_path, provider, "--no-text", "--retain", "30d", "--error-log", log) as started,
    ):
        running = RunningProxy(started["url"])
        call_id, _ = post(running, path, json.dumps(body).encode())
        shown = command(tmp_path, "proxy", "status").stdout
        (state,) = json.loads(command(tmp_path, "proxy", "status", "--json").stdout)
        page = httpx.get(f"{running.url}/nexus/calls/{call_id}", headers={"accept": "text/plain"}, trust_env=False)
        assert canaries_on_disk(tmp_path) == set()
    assert "record without text (no replay, no undo), 1 call" in shown
    assert (state["no_text"], state["retain"]) == (True, "30d")
    for text in (page.text, command(tmp_path, "proxy", "call", call_id).stdout):
        assert "without text: there is no replay, no undo and no text of it" in text
        assert hashlib.sha256(json.dumps(body).encode()).hexdigest() in text
    assert json.loads(command(tmp_path, "proxy", "call", call_id, "--json").stdout)["no_text"] is True
    assert canaries_on_disk(tmp_path) == set()
