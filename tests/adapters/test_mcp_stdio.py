"""`nexus mcp` over standard input and output, as a client starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nexus
from adapters.running_mcp import StdioClient
from adapters.test_mcp_server import talk

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with nexus.open(tmp_path) as nx:
        talk(nx, "main", "The crane is serviced on 14 March.")
    return tmp_path


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_versions_with_a_handshake_are_spoken(version: str, folder: Path) -> None:
    with StdioClient(cwd=folder) as client:
        answer = client.initialize(version)
        assert (answer["protocolVersion"], answer["serverInfo"]["name"]) == (version, "nexus")
        assert len(client.request("tools/list")["result"]["tools"]) == 4
        assert "14 March" in client.call("search", query="crane")["content"][0]["text"]
        assert client.end() == ""


def test_newest_version_is_spoken_with_ttl(folder: Path) -> None:
    with StdioClient("--write", cwd=folder) as client:
        discovered = client.request("server/discover", {"_meta": ENVELOPE})["result"]
        assert discovered["supportedVersions"] == ["2026-07-28"]
        assert "io.modelcontextprotocol/ui" in discovered["capabilities"]["extensions"]
        listed = client.request("tools/list", {"_meta": ENVELOPE})["result"]
        assert (len(listed["tools"]), listed["ttlMs"], listed["cacheScope"]) == (5, 3_600_000, "private")
        read = {"_meta": ENVELOPE, "name": "read", "arguments": {"session": "main"}}
        assert client.request("tools/call", read)["result"]["structuredContent"]["messages"][0]["at"] == "1.0"


def test_client_is_answered_within_a_second_of_work(folder: Path) -> None:
    with StdioClient(cwd=folder) as client:
        client.initialize("2025-11-25")
        seconds = cpu_seconds(client.process.pid)
        assert len(client.request("tools/list")["result"]["tools"]) == 4
    assert seconds < 1.5  # about 0.8 on a machine that does nothing else


def cpu_seconds(pid: int) -> float:
    """Return the time that a process has worked; where it cannot be seen, 0."""
    file = Path(f"/proc/{pid}/stat")
    if not file.exists():
        return 0
    user, system = file.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def test_every_line_is_answered_and_none_ends_the_server(folder: Path) -> None:
    huge = json.dumps({"query": "crane " * 2_000_000})
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    with StdioClient(cwd=folder) as client:
        client.initialize("2025-06-18")
        for line, code in (
            (b"no JSON", -32_700),
            (b"\xff\xfe", -32_700),
            (deep.encode(), -32_700),
            (b"[]", -32_600),
            (b'{"jsonrpc":"2.0","id":4}', -32_600),
            (b'{"jsonrpc":"2.0","id":true}', -32_600),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32_600),
            (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32_600),
            (b'{"jsonrpc":"2.0","id":4,"method":"nothing"}', -32_601),
            (b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"rm","arguments":{}}}', -32_602),
            (b'{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}', -32_602),
        ):
            client.send(line)
            answer = client.receive()
            assert answer["error"]["code"] == code, (line[:60], answer)
        for arguments, text in ((huge, "length <= 2000"), ('{"query":"\\ud800 crane"}', "14 March")):
            client.send(
                b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"search","arguments":%s}}'
                % arguments.encode()
            )
            answer = client.receive()
            assert answer["id"] == 5
            assert text in answer["result"]["content"][0]["text"]


def test_ledger_that_is_made_later_is_found(tmp_path: Path) -> None:
    with StdioClient(cwd=tmp_path) as client:
        client.initialize("2025-11-25")
        assert client.call("search", query="crane")["structuredContent"] == {"hits": []}
        with nexus.open(tmp_path) as nx:
            talk(nx, "main", "The crane is serviced on 14 March.")
        assert "14 March" in client.call("search", query="crane")["content"][0]["text"]
        with nexus.open(tmp_path) as nx:  # another process writes while the server runs
            talk(nx, "main", "The crane is sold.")
        assert "sold" in client.call("search", query="sold")["content"][0]["text"]


def test_ledger_that_is_replaced_is_read_without_a_restart(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    with nexus.open(other) as nx:
        talk(nx, "restored", "The heron nests in May.")
    files = folder / ".nexus"
    with StdioClient(cwd=folder) as client:
        client.initialize("2025-11-25")
        assert "14 March" in client.call("search", query="crane")["content"][0]["text"]
        for file in files.glob("ledger.db*"):
            file.unlink()
        assert client.call("search", query="crane")["structuredContent"] == {"hits": []}
        for file in (other / ".nexus").glob("ledger.db*"):
            file.rename(files / file.name)
        assert "May" in client.call("search", query="heron")["content"][0]["text"]
        (files / "ledger.db").write_text("garbage" * 1_000)
        assert client.call("search", query="heron")["isError"]


def test_two_servers_remember_into_one_memory(folder: Path) -> None:
    with StdioClient("--write", cwd=folder) as one, StdioClient("--write", cwd=folder) as two:
        for client in (one, two):
            client.initialize("2025-11-25")
        for number in range(5):
            for name, client in (("one", one), ("two", two)):
                message = {"name": "remember", "arguments": {"fact": f"Fact {number} of {name}."}}
                client.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message}).encode())
            assert [client.receive()["result"]["isError"] for client in (one, two)] == [False, False]
        assert len(one.call("recall")["structuredContent"]["facts"]) == 10
    shown = subprocess.run(
        [sys.executable, "-m", "nexus", "memory", "undo", "-w", folder], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr


def test_broken_ledger_is_an_error_of_each_call(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("this is no ledger" * 100)
    with StdioClient("--ledger", "no.db", cwd=tmp_path) as client:
        client.initialize("2025-11-25")
        for _ in range(2):
            result = client.call("search", query="crane")
            assert result["isError"]
            assert "no.db" in result["content"][0]["text"]
