"""MCP servers as other people write them, and programs that speak to `nexus serve --stdio`: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nexus.agents.mcp_messages import RepairingDecoder
from nexus.agents.mcp_tools import McpTools, open_mcp_tools
from nexus.types.message import Image, Text, ToolCall, ToolResult
from nexus.workspace.config import McpServer
from nexus.workspace.credentials.store import Credentials
from support.tool_schemas import schema_problems

SERVER = str(Path(__file__).parent / "scripted_mcp_server.py")
GITHUB = "https://github.com/"
TIMEOUT_S = 60.0
"""A call that waits it out fails with a sentence that no row expects."""


class Row(NamedTuple):
    situation: str
    source: str  # address of a public report, or "own"
    says: tuple[str, ...] = ("beside",)
    is_error: bool = False


SURROGATE = f"{GITHUB}anthropics/claude-code/issues/69440"
ROWS = [
    Row("plain", "own"),
    Row("lone surrogate", SURROGATE, ("\ufffd beside",)),
    Row("lone low surrogate", SURROGATE, ("\ufffd beside",)),
    Row("half a pair at the end", SURROGATE, ("beside \ufffd",)),
    Row("a pair and a half", SURROGATE, ("\U0001f600\ufffd beside",)),
    Row("surrogate in UTF-8", "own", ("\ufffd beside",)),
    Row("escaped backslash", "own", ("beside \\ud800",)),
    Row("byte order mark", f"{GITHUB}modelcontextprotocol/kotlin-sdk/issues/956"),
    Row("invalid byte", f"{GITHUB}agentclientprotocol/codex-acp/issues/397", ("\ufffd beside",)),
    Row("cut character", f"{GITHUB}FellouAI/eko/issues/276", ("\ufffd beside",)),
    Row("latin-1", "own", ("\ufffd beside",)),
    Row("raw tab", "own", ("beside\there",)),
    Row("raw control character", "own"),
    Row("U+2028", f"{GITHUB}earendil-works/pi/issues/1910", ("beside \u2028",)),
    Row("not a number", "own"),
    Row("no version", "own"),
    Row("result null", "own", ("its answer has no result",), is_error=True),
    Row("result a list", "own", ("its answer has no result", "beside"), is_error=True),
    Row("error a text", "own", ("beside",), is_error=True),
    Row("half an answer", "own", ("its answer is not JSON",), is_error=True),
    Row("too long", "own", ("over 16 MB",), is_error=True),
    Row("too long, id last", "own", ("over 16 MB",), is_error=True),
    Row("endless", "own", ("over 16 MB",), is_error=True),
    Row("unknown kind", "own", ("beside", "[video, cannot be shown]")),
    Row("unknown kind with text", "own", ("beside", "[markdown]", "# Title")),
    Row("kind missing", "own"),
    Row("kind null", "own"),
    Row("text null", "own"),
    Row("image without data", "own", ("beside", "[image, cannot be shown]")),
    Row("annotations wrong", "own"),
    Row("content a text", "own"),
    Row("content an object", "own"),
    Row("content null", "own", ()),
    Row("item a text", "own"),
    Row("resource without uri", "own", ("beside", "inside")),
    Row("resource empty", "own"),
    Row("link without name", "own", ("beside", "file:///a")),
    Row("structured list", "own"),
    Row("structured without schema", "own"),
]


def connected(server: McpServer, use: Callable[[McpTools], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        credentials = Credentials(Path(os.devnull), {})
        async with open_mcp_tools(
            [server], credentials, connect_timeout_s=TIMEOUT_S, call_timeout_s=TIMEOUT_S
        ) as tools:
            return await use(tools)

    return asyncio.run(run())


def program(situation: str) -> McpServer:
    return McpServer("s", sys.executable, (SERVER, situation), is_users=True, origin="~/.nexus/mcp.json")


@contextmanager
def address(situation: str, kind: str) -> Generator[McpServer]:
    """Yield the server over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, SERVER, situation, str(port), kind])
    try:
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield McpServer("s", url=f"http://127.0.0.1:{port}/mcp", is_users=True)
    finally:
        process.kill()
        process.wait()


async def look(tools: McpTools) -> ToolResult:
    return await tools.registry.execute_call(ToolCall("c1", "mcp__s__look", "{}"))


def text_of(result: ToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def check_row(row: Row, server: McpServer) -> None:
    result = connected(server, look)
    text = text_of(result)
    assert [part for part in row.says if part not in text] == []
    assert result.is_error is row.is_error


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.situation)
def test_answer_of_a_program_comes_at_once_and_keeps_its_text(row: Row) -> None:
    check_row(row, program(row.situation))


@pytest.mark.parametrize("kind", ["json", "events"])
@pytest.mark.parametrize(
    "name", ["lone surrogate", "byte order mark", "invalid byte", "unknown kind", "too long", "raw tab"]
)
def test_answer_of_an_address_comes_at_once_and_keeps_its_text(name: str, kind: str) -> None:
    row = next(row for row in ROWS if row.situation == name)
    with address(name, kind) as server:
        check_row(row, server)


@pytest.mark.parametrize("name", ["image/jpg", "IMAGE/PNG", "image/png; q=1"])
def test_images_are_known_by_every_spelling_of_their_type(name: str) -> None:
    result = connected(program(name), look)
    assert [part.width for part in result.content if isinstance(part, Image)] == [1]


SCHEMAS = [
    ("output without type", f"{GITHUB}opentokenz/mcpx/issues/28", 2), ("output of a list", "own", 2), ("output a text", "own", 2),
    ("output invalid", "own", 2), ("input missing", "own", 2), ("input null", "own", 2), ("input without type", "own", 2),
    ("input with oneOf", f"{GITHUB}software-mansion/argent/issues/773", 2), ("properties null", "own", 2), ("properties true", "own", 2),
    ("brackets", f"{GITHUB}beautyfree/appstore-connect-mcp/issues/2", 2), ("annotations wrong", "own", 2), ("description a list", "own", 2),
    ("input a text", "own", 1), ("input a list", "own", 1), ("name missing", "own", 1), ("tool a text", "own", 1),
]  # fmt: skip


@pytest.mark.parametrize(("situation", "_source", "count"), SCHEMAS, ids=[row[0] for row in SCHEMAS])
def test_one_impossible_schema_costs_at_most_its_tool(situation: str, _source: str, count: int) -> None:
    async def use(tools: McpTools) -> None:
        assert tools.servers == ("s",)
        assert len(tools.registry) == count
        assert len(tools.warnings) == 2 - count
        assert all("omitted" in warning.message for warning in tools.warnings)
        assert [problem for tool in tools.registry.tools() for problem in schema_problems(tool.schema)] == []
        for tool in tools.registry.tools():
            assert text_of(await tools.registry.execute_call(ToolCall("c", tool.name, "{}"))) == "beside"

    connected(program(situation), use)


CURSORS = [
    ("same cursor", f"{GITHUB}DeusData/codebase-memory-mcp/issues/1247", 2, 1), ("always the first page", "own", 1, 1),
    ("cursors in a circle", "own", 3, 1), ("empty cursor", "own", 1, 0), ("cursor a number", "own", 1, 0),
    ("three pages", f"{GITHUB}vercel/ai/issues/19240", 3, 0),
]  # fmt: skip


@pytest.mark.parametrize(("situation", "_source", "count", "warnings"), CURSORS, ids=[row[0] for row in CURSORS])
def test_pages_end_when_they_repeat_with_one_warning(situation: str, _source: str, count: int, warnings: int) -> None:
    async def use(tools: McpTools) -> None:
        assert len(tools.registry) == count
        assert len(tools.warnings) == warnings

    connected(program(situation), use)


def test_server_answers_on_after_an_answer_that_is_too_long() -> None:
    async def use(tools: McpTools) -> None:
        for _ in range(2):
            assert "over 16 MB" in text_of(await look(tools))
        results = await asyncio.gather(look(tools), look(tools))
        assert all("over 16 MB" in text_of(result) for result in results)

    connected(program("too long"), use)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_lines_are_decoded_however_they_are_cut(size: int) -> None:
    sent = '\ufeff{"a":"größe"}\nlog line\n{"b":"\\ud800"}\n'.encode()
    decoder = RepairingDecoder()
    text = "".join(decoder.decode(sent[at : at + size]) for at in range(0, len(sent), size))
    assert text == '{"a":"größe"}\nlog line\n{"b":"\ufffd"}\n'


# nexus serve --stdio -------------------------------------------------------------------------------------------------

REQUESTS: list[tuple[str, str, bytes, str]] = [
    ("lone surrogate", f"{GITHUB}elizaOS/eliza/issues/18079", b'{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"a","persona":"\\ud800"}}', ""),
    ("byte order mark", f"{GITHUB}modelcontextprotocol/typescript-sdk/issues/2790", b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"list_agents"}', ""),
    ("two marks and a space", "own", b'\xef\xbb\xbf\xef\xbb\xbf {"jsonrpc":"2.0","id":1,"method":"list_agents"}', ""),
    ("invalid byte", "own", b'{"jsonrpc":"2.0","id":1,"method":"get_messages","params":{"agent_id":"\xff"}}', "\ufffd"),
    ("lone surrogate in a name", "own", b'{"jsonrpc":"2.0","id":1,"method":"get_\\udc00"}', "not found"),
]  # fmt: skip


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], bytes]]:
    root = tmp_path_factory.mktemp("serving")
    (root / "workspace").mkdir()
    command = [sys.executable, "-m", "nexus", "serve", "--stdio", "-m", "gpt-4o", "-w", str(root / "workspace")]
    environment = {**os.environ, "NEXUS_HOME": str(root / "home"), "OPENAI_API_KEY": "none"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(line: bytes) -> bytes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            return process.stdout.readline()

        yield ask
        process.stdin.close()
        process.wait()


@pytest.mark.parametrize(("_name", "_source", "line", "says"), REQUESTS, ids=[row[0] for row in REQUESTS])
def test_request_is_answered_with_its_id(
    serving: Callable[[bytes], bytes], _name: str, _source: str, line: bytes, says: str
) -> None:
    answer = serving(line)
    assert json.loads(answer)["id"] == 1
    text = answer.decode()
    assert says in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085"])
def test_line_separators_are_written_escaped(serving: Callable[[bytes], bytes], separator: str) -> None:
    """https://github.com/getpaseo/paseo/issues/4850"""
    request = {"jsonrpc": "2.0", "id": f"a{separator}b", "method": "list_agents"}
    answer = serving(json.dumps(request, ensure_ascii=False).encode()).decode()
    assert f"a\\u{ord(separator):04x}b" in answer
    assert json.loads(answer)["id"] == f"a{separator}b"
    assert len(answer.splitlines()) == 1


@pytest.mark.parametrize("method", ["send", "begin", "cancel"])
@pytest.mark.parametrize("request_id", ["", " "])
def test_empty_request_id_is_refused(serving: Callable[[bytes], bytes], method: str, request_id: str) -> None:
    agent_id = f"{method}-{len(request_id)}"
    create = {"jsonrpc": "2.0", "id": 1, "method": "create_agent", "params": {"agent_id": agent_id}}
    assert "error" not in json.loads(serving(json.dumps(create).encode()))
    params = {"agent_id": agent_id, "request_id": request_id}
    content = {} if method == "cancel" else {"content": "hi"}
    request = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {**params, **content}}
    answer = json.loads(serving(json.dumps(request).encode()))
    assert "request_id is empty" in answer["error"]["message"]
