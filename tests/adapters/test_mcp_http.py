"""The MCP server over HTTP: who is admitted, and what each token shows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import nexus
from adapters.running_mcp import TOKEN, running_http
from adapters.test_mcp_server import SECRET, talk
from nexus.errors import BadSetting
from nexus.server.security import read_tokens

BOB = "the-token-of-bob-himself"
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}


def post(url: str, body: Any, token: str = TOKEN, **headers: str) -> httpx.Response:
    """Send one message."""
    all_headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2025-11-25",
        **headers,
    }
    return httpx.post(url, json=body, headers=all_headers)


def call(url: str, token: str, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its result."""
    answer = post(url, {**CALL, "params": {"name": name, "arguments": arguments}}, token)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with nexus.open(tmp_path) as nx:
        talk(nx, "dm:alice", SECRET, principal="alice")
        talk(nx, "dm:bob", "Bob likes gravel.", principal="bob")
    return tmp_path


def test_token_decides_whose_sessions_are_shown(folder: Path) -> None:
    with running_http(folder, principals={BOB: "bob"}) as url:
        assert SECRET in json.dumps(call(url, TOKEN, "search", query="treasure"))
        assert call(url, BOB, "search", query="treasure")["structuredContent"] == {"hits": []}
        assert [hit["session"] for hit in call(url, BOB, "search")["structuredContent"]["hits"]] == ["dm:bob"]
        assert call(url, BOB, "read", session="dm:alice")["isError"]


@pytest.mark.parametrize(
    ("headers", "status", "text"),
    [
        ({"Authorization": "Bearer wrong"}, 401, "nexus mcp --http"),
        ({"Authorization": f"Basic {TOKEN}"}, 401, "Bearer TOKEN"),
        ({"Host": "evil.example"}, 421, "--allow-host"),
        ({"Origin": "https://evil.example"}, 403, "--allow-origin"),
        ({"Origin": "null"}, 403, "--allow-origin"),
    ],
)
def test_requests_that_are_not_admitted_say_why(headers: dict[str, str], status: int, text: str, folder: Path) -> None:
    with running_http(folder) as url:
        answer = post(url, {**CALL, "method": "tools/list"}, **headers)
    assert answer.status_code == status
    assert text in answer.json()["error"]["message"]


def test_other_paths_large_bodies_and_broken_ones_are_refused(folder: Path) -> None:
    with running_http(folder) as url:
        assert post(url.replace("/mcp", "/"), CALL).status_code == 404
        assert (
            post(url, {**CALL, "params": {"name": "search", "arguments": {"query": "x" * 10_000_000}}}).status_code
            == 413
        )
        headers = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        for body in (b"no JSON", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}', b"[]"):
            assert httpx.post(url, content=body, headers=headers).status_code == 400
        assert call(url, TOKEN, "search", query="gravel")["structuredContent"]["hits"]


def test_token_file_may_name_principals_for_this_server_only(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN} local\n{BOB} local bob\n")
    file.chmod(0o600)
    tokens = read_tokens(file, with_principals=True)
    assert tokens.owner_of(f"Bearer {BOB}") == ("local", "bob")
    assert tokens.owner_of(f"Bearer {TOKEN}") == ("local", "")
    with pytest.raises(BadSetting, match="line 2"):
        read_tokens(file)


def test_command_serves_tenants_apart_and_without_memory(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"{TOKEN} local\n{BOB} other\n")
    file.chmod(0o600)
    with nexus.open(tmp_path) as nx:
        talk(nx, "main", SECRET)
    words = ["mcp", "--http", "127.0.0.1:0", "--token-file", str(file), "--json", "--write", "-w", str(tmp_path)]
    with subprocess.Popen([sys.executable, "-m", "nexus", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            assert SECRET in json.dumps(call(url, TOKEN, "search", query="treasure"))
            assert call(url, BOB, "search", query="treasure")["structuredContent"] == {"hits": []}
            listed = post(url, {**CALL, "method": "tools/list"}).json()["result"]["tools"]
            assert [row["name"] for row in listed] == ["search", "read", "context"]
            assert "no memory here" in call(url, TOKEN, "remember", fact="x")["content"][0]["text"]
        finally:
            os.kill(process.pid, signal.SIGTERM)
        assert process.wait(20) == 0
