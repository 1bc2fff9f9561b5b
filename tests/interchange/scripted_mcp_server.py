"""An MCP server that answers as other people's servers do: `python scripted_mcp_server.py SITUATION`, over stdio.

It speaks version 2025-06-18 and writes bytes, as no library would. Over HTTP: `SITUATION PORT json` or `… PORT events`.
"""

from __future__ import annotations

import http.server
import json
import sys
import time
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
BOM = b"\xef\xbb\xbf"
OVER_16_MB = 17 * 2**20
TEXT = {"type": "text", "text": "beside"}
TOOL: dict[str, Any] = {"name": "look", "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}}

CONTENTS: dict[str, Any] = {
    "plain": [TEXT],
    "unknown kind": [TEXT, {"type": "video", "data": "AAAA", "mimeType": "video/mp4"}],
    "unknown kind with text": [TEXT, {"type": "markdown", "text": "# Title"}],
    "kind missing": [{"text": "beside"}],
    "kind null": [TEXT, {"type": None}],
    "text null": [TEXT, {"type": "text", "text": None}],
    "image without data": [TEXT, {"type": "image", "mimeType": "image/png"}],
    "annotations wrong": [{**TEXT, "annotations": {"priority": "high", "audience": "everyone"}}],
    "content a text": "beside",
    "content an object": TEXT,
    "content null": None,
    "item a text": ["beside"],
    "resource without uri": [TEXT, {"type": "resource", "resource": {"text": "inside"}}],
    "resource empty": [TEXT, {"type": "resource", "resource": None}],
    "link without name": [TEXT, {"type": "resource_link", "uri": "file:///a"}],
    "image/jpg": [{"type": "image", "mimeType": "image/jpg", "data": PIXEL}],
    "IMAGE/PNG": [{"type": "image", "mimeType": "IMAGE/PNG", "data": PIXEL}],
    "image/png; q=1": [{"type": "image", "mimeType": "image/png; charset=binary", "data": PIXEL}],
}

TOOLS: dict[str, list[Any]] = {
    "output without type": [TOOL, {**TOOL, "name": "other", "outputSchema": {"properties": {}}}],
    "output of a list": [TOOL, {**TOOL, "name": "other", "outputSchema": {"type": "array"}}],
    "output a text": [TOOL, {**TOOL, "name": "other", "outputSchema": "text"}],
    "output invalid": [TOOL, {**TOOL, "name": "other", "outputSchema": {"type": "object", "properties": {"a": {"type": "any"}}}}],
    "input missing": [TOOL, {"name": "other"}],
    "input null": [TOOL, {"name": "other", "inputSchema": None}],
    "input without type": [TOOL, {"name": "other", "inputSchema": {"properties": {"a": {"type": "string"}}}}],
    "input with oneOf": [TOOL, {"name": "other", "inputSchema": {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}]}}],
    "properties null": [TOOL, {"name": "other", "inputSchema": {"type": "object", "properties": None}}],
    "properties true": [TOOL, {"name": "other", "inputSchema": {"type": "object", "properties": {"a": True, "b": None}}}],
    "brackets": [TOOL, {"name": "other", "inputSchema": {"type": "object", "properties": {"filter[id]": {"type": "string"}}}}],
    "annotations wrong": [TOOL, {**TOOL, "name": "other", "annotations": {"readOnlyHint": "yes", "title": 5}}],
    "description a list": [TOOL, {**TOOL, "name": "other", "description": ["a"], "icons": "x", "_meta": 5}],
    "input a text": [TOOL, {"name": "bad", "inputSchema": "string"}],
    "input a list": [TOOL, {"name": "bad", "inputSchema": {"type": "array", "items": {}}}],
    "name missing": [TOOL, {"inputSchema": {"type": "object"}}],
    "tool a text": [TOOL, "look"],
}  # fmt: skip

TAILS: dict[str, bytes] = {
    "lone surrogate": b'"\\ud83d beside"',
    "lone low surrogate": b'"\\udc00 beside"',
    "half a pair at the end": b'"beside \\ud83d"',
    "a pair and a half": b'"\\ud83d\\ude00\\ud83d beside"',
    "invalid byte": b'"\xff beside"',
    "cut character": b'"\xe2\x82 beside"',
    "surrogate in UTF-8": b'"\xed\xa0\x80 beside"',
    "latin-1": "\u00e9 beside".encode("latin-1").join((b'"', b'"')),
    "raw tab": b'"beside\there"',
    "raw control character": b'"beside \x01"',
    "U+2028": '"beside \u2028"'.encode(),
    "escaped backslash": b'"beside \\\\ud800"',
}


def respond(situation: str, request: dict[str, Any]) -> bytes:
    """Return the line that answers a request; empty for a notification."""
    if "id" not in request:
        return b""
    method, number = request["method"], request["id"]
    result: Any = {}
    if method == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
    elif method == "tools/list":
        params: dict[str, Any] = request.get("params") or {}
        result = _listing(situation, params.get("cursor"))
    elif method == "tools/call":
        return _call(situation, number)
    elif method != "ping":
        return json.dumps(
            {"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}}
        ).encode()
    line = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
    return BOM + line if situation == "byte order mark" else line


def _listing(situation: str, cursor: str | None) -> dict[str, Any]:
    page = 0 if cursor is None else int(cursor.removeprefix("c"))
    match situation:
        case "same cursor":
            return {"tools": [{**TOOL, "name": f"look{page}"}], "nextCursor": "c1"}
        case "cursors in a circle":
            return {"tools": [{**TOOL, "name": f"look{page}"}], "nextCursor": f"c{(page + 1) % 3}"}
        case "always the first page":
            return {"tools": [TOOL], "nextCursor": f"c{page + 1}"}
        case "empty cursor":
            return {"tools": [TOOL], "nextCursor": ""}
        case "cursor a number":
            return {"tools": [TOOL], "nextCursor": 0}
        case "three pages":
            more = {"nextCursor": f"c{page + 1}"} if page < 2 else {"nextCursor": None}
            return {"tools": [{**TOOL, "name": f"look{page}"}], **more}
        case _:
            return {"tools": TOOLS.get(situation, [TOOL])}


START = b'"result":{"content":[{"type":"text","text":"'
LONG_TEXT = b"x" * OVER_16_MB

ANSWERS: dict[str, tuple[bytes, bytes]] = {  # what precedes the id, and what follows it
    "too long": (b'{"jsonrpc":"2.0","id":', b"," + START + LONG_TEXT + b'"}]}}'),
    "too long, id last": (b"{" + START + LONG_TEXT + b'"}]},"jsonrpc":"2.0","id":', b"}"),
    "endless": (b'{"jsonrpc":"2.0","id":', b"," + START + LONG_TEXT + b"ENDLESS"),
    "result null": (b'{"jsonrpc":"2.0","id":', b',"result":null}'),
    "result a list": (b'{"jsonrpc":"2.0","id":', b',"result":["beside"]}'),
    "error a text": (b'{"jsonrpc":"2.0","id":', b',"error":"beside"}'),
    "no version": (b'{"id":', b"," + START + b'beside"}]}}'),
    "not a number": (b'{"jsonrpc":"2.0","id":', b"," + START + b'beside"}],"structuredContent":{"a":NaN}}}'),
    "half an answer": (b'{"jsonrpc":"2.0","id":', b"," + START + b"besi"),
    "structured list": (b'{"jsonrpc":"2.0","id":', b',"result":{"content":[],"structuredContent":["beside"]}}'),
    "structured without schema": (
        b'{"jsonrpc":"2.0","id":',
        b"," + START + b'beside"}],"structuredContent":{"wrong":1}}}',
    ),
}


def _call(situation: str, number: Any) -> bytes:
    if situation in TAILS:
        return b'{"jsonrpc":"2.0","id":%d,' % number + START[:-1] + TAILS[situation] + b"}]}}"
    if situation in ANSWERS:
        return b"%d".join(ANSWERS[situation]).replace(b"%d", b"%d" % number, 1)
    line = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": CONTENTS.get(situation, [TEXT])}}).encode()
    return BOM + line if situation == "byte order mark" else line


def serve_stdio(situation: str) -> None:
    """Answer the lines of standard input."""
    for line in sys.stdin.buffer:
        answer = respond(situation, json.loads(line))
        if answer.endswith(b"ENDLESS"):
            sys.stdout.buffer.write(answer)
            sys.stdout.buffer.flush()
            time.sleep(600)
        if answer:
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()


class _Handler(http.server.BaseHTTPRequestHandler):
    situation = kind = ""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = respond(self.situation, request)
        if not answer:
            self.send_response(202)
            self.end_headers()
            return
        is_json = self.kind == "json"
        self.send_response(200)
        self.send_header("Content-Type", "application/json" if is_json else "text/event-stream")
        self.end_headers()
        self.wfile.write(answer if is_json else b"event: message\ndata: " + answer + b"\n\n")

    def do_GET(self) -> None:
        self.send_response(405)
        self.end_headers()

    do_DELETE = do_GET  # noqa: N815 - the name that the class looks for

    def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Say nothing."""


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve_stdio(sys.argv[1])
    else:
        _Handler.situation, _Handler.kind = sys.argv[1], sys.argv[3]
        http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), _Handler).serve_forever()
