"""Messages of MCP servers, repaired so that the package `mcp` can read them.

The package parses messages strictly. It leaves a request unanswered if the answer contains a lone surrogate, a byte
order mark, an invalid byte, an impossible schema or an unknown kind of content. `RepairingDecoder` repairs the bytes of
lines, and `lenient_result` the contents of a result.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Mapping
from typing import Any, Self, cast

import msgspec

from nexus.errors import BadTool
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_schemas import usable_schema
from nexus.types.validation import check_json, json_copy, repair_json

DESCRIPTION_CHARS = 2_000
MAX_ANSWER_BYTES = 16 * 2**20
ANSWER_LOST = -32_050
"""Code of the error that replaces an unusable answer."""

ENCODING = "nexus_mcp_lines"
"""Encoding of a server's lines for the package: UTF-8, decoded by `RepairingDecoder`."""

TOO_LONG = f"its answer has over {MAX_ANSWER_BYTES // 2**20} MB (ask for less at once; the call may have had an effect)"

_END_BYTES = 1_000
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){1,200}")\s*'
_ID_AT_START = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID + rb",\s*(?:\"jsonrpc\"[^,]*,\s*)?\"(?:result|error)\""
)
_ID_AT_END = re.compile(rb",\s*" + _ID + rb'(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')
_ENDS = re.compile("[\x85\u2028\u2029]")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class RepairingDecoder(codecs.IncrementalDecoder):
    """Decodes lines of JSON: repairs each line, and replaces an answer that is too long with an error.

    It returns whole lines. It keeps the beginning and the end of a line that is too long, which may have the request's
    id.

    Args:
        errors: As for every decoder; invalid bytes are replaced.
        prefix: What precedes the JSON of a line; lines without it are not repaired.
        request_id: The id of the request that is answered, as JSON, if it is known.
    """

    def __init__(self, errors: str = "strict", *, prefix: bytes = b"", request_id: bytes = b"") -> None:
        super().__init__(errors)
        self._prefix = prefix
        self._request_id = request_id
        self._line = bytearray()
        self._start = b""
        self._is_too_long = self._is_answered = False

    def decode(self, input: Any, final: bool = False) -> str:  # noqa: A002, FBT002 - as in the class
        """Return the lines that end in the input; with `final` the rest too."""
        *complete, rest = bytes(input).split(b"\n")
        texts: list[str] = []
        for piece in complete:
            texts.append(self._add(piece))
            texts.append(self._end())
        texts.append(self._add(rest))
        if final and self._line:
            texts.append(self._end())
        return "".join(texts)

    def reset(self) -> None:
        """Forget the line that has not ended."""
        self._line.clear()
        self._is_answered = self._is_too_long = False

    def _add(self, piece: bytes) -> str:
        """Add a part of a line; return an error if the line has become too long and its id is known."""
        self._line += piece
        if len(self._line) <= MAX_ANSWER_BYTES and not self._is_too_long:
            return ""
        if not self._is_too_long:
            self._is_too_long = True
            self._start = bytes(self._line[:_END_BYTES]).removeprefix(self._prefix)
        del self._line[:-_END_BYTES]
        if self._is_answered:
            return ""
        return self._error(_ID_AT_START.match(self._start))

    def _end(self) -> str:
        """Return the line that has ended, or an error for one that is too long, if its id is at its end."""
        line = bytes(self._line)
        is_too_long = self._is_too_long
        is_answered = self._is_answered
        self.reset()
        if is_too_long:
            if is_answered:
                return "\n"
            return self._error(_ID_AT_END.search(line))
        if not line.startswith(self._prefix):
            return line.decode("utf-8", "replace") + "\n"
        repaired = repair_line(line.removeprefix(self._prefix))
        return f"{self._prefix.decode()}{repaired.decode('utf-8', 'replace')}\n"

    def _error(self, match: re.Match[bytes] | None) -> str:
        request_id = self._request_id or (match[1] if match else b"")
        if not request_id:
            return ""
        self._is_answered = True
        return f"{self._prefix.decode()}{error_line(request_id, TOO_LONG)}"


def error_line(request_id: bytes, reason: str) -> str:
    """Return the line of an error that answers a request."""
    error = msgspec.json.encode({"code": ANSWER_LOST, "message": reason}).decode()
    return f'{{"jsonrpc":"2.0","id":{request_id.decode("utf-8", "replace")},"error":{error}}}\n'


def repair_line(line: bytes) -> bytes:
    """Return a message as JSON in UTF-8; an unusable answer becomes an error for the request with its id."""
    repaired = repair_json(line, nan_as_null=True)
    try:
        message: Any = msgspec.json.decode(repaired)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        match = _ID_AT_START.match(repaired)  # a line of a log, or an answer that is no JSON
        if match:
            return error_line(match[1], "its answer is not JSON").encode().rstrip()
        return repaired
    if not isinstance(message, dict):
        return repaired
    fields = cast("dict[str, Any]", message)
    if "method" in fields or not isinstance(fields.get("id"), (int, str)):
        return repaired
    answer = _answer(fields)
    if answer == fields:
        return repaired
    return msgspec.json.encode(answer)


def _answer(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a response with the fields that the protocol requires."""
    head = {"jsonrpc": "2.0", "id": fields["id"]}
    error = fields.get("error")
    if isinstance(fields.get("result"), dict) and error is None:
        return {**head, "result": fields["result"]}
    if isinstance(error, dict):
        details = cast("dict[str, Any]", error)
        code = details.get("code")
        is_code = isinstance(code, int) and not isinstance(code, bool)
        text = details.get("message")
        return {
            **head,
            "error": {
                **details,
                "code": code if is_code else ANSWER_LOST,
                "message": text if isinstance(text, str) else _json(details),
            },
        }
    reason = f"its answer has no result: {_json(fields.get('result') if error is None else error)[:200]}"
    return {**head, "error": {"code": ANSWER_LOST, "message": reason}}


def _json(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


# results -------------------------------------------------------------------------------------------------------------


def lenient_result(result: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a result with its usable tools and contents, and a line for each unusable tool."""
    if isinstance(result.get("tools"), list):
        return _listing(result)
    if "content" in result or "structuredContent" in result or "isError" in result:
        return _call_result(result), []
    return result, []


class WatchedStream:
    """A server's messages, the package's `ReadStream`, with usable results; `ended` is set when there will be no more."""

    def __init__(self, stream: Any, ended: asyncio.Event, problems: list[str]) -> None:
        self._stream = stream
        self._ended = ended
        self._problems = problems

    @property
    def last_context(self) -> Any:
        """Context of the sender."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        """Return the next message."""
        return self._lenient(await self._stream.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> WatchedStream:
        return self

    async def __anext__(self) -> Any:
        return self._lenient(await self._stream.__anext__())

    def _lenient(self, item: Any) -> Any:
        """Return a message whose result the package accepts; `problems` gets a line for each tool that is omitted."""
        message = getattr(item, "message", None)
        result = getattr(message, "result", None)
        if message is not None and isinstance(result, dict):
            message.result, problems = lenient_result(cast("dict[str, Any]", result))
            self._problems.extend(problems)
        return item

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        self._ended.set()
        return await self._stream.__aexit__(*error)


def _listing(result: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    tools: list[dict[str, Any]] = []
    problems: list[str] = []
    for tool in cast("list[object]", result["tools"]):
        fields = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
        name = fields.get("name")
        if not isinstance(name, str) or not name:
            problems.append("tool without a name omitted")
            continue
        try:
            tools.append(_tool(name, fields))
        except (BadTool, ValueError, RecursionError) as error:
            problems.append(f"tool {name!r} omitted: {error}")
    cursor = result.get("nextCursor")
    listing = {key: value for key, value in result.items() if key != "nextCursor"}
    if isinstance(cursor, str) and cursor:
        listing["nextCursor"] = cursor
    return {**listing, "tools": tools}, problems


def _tool(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool with the fields that are used, in the form that the protocol requires. Raises BadTool.

    The output schema is omitted: the package would check results against it, and lose those that differ.
    """
    declared = fields.get("inputSchema")
    if not isinstance(declared, dict) and declared not in (None, [], "", True):
        raise BadTool("its inputSchema is not a schema")
    fields_of_schema = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    schema, note = usable_schema(json_copy(fields_of_schema))
    check_json(schema)
    tool: dict[str, Any] = {"name": name, "inputSchema": schema}
    texts = {key: fields[key] for key in ("title", "description") if isinstance(fields.get(key), str)}
    if note:
        text = texts.get("description") or texts.get("title", "")
        texts["description"] = f"{text[: DESCRIPTION_CHARS - len(note) - 2]}\n\n{note}".strip()
    annotations = fields.get("annotations")
    hints = cast("dict[str, Any]", annotations) if isinstance(annotations, dict) else {}
    if flags := {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}:
        tool["annotations"] = flags
    return {**tool, **texts}


def _call_result(result: dict[str, Any]) -> dict[str, Any]:
    content = result.get("content")
    if isinstance(content, list):
        items = cast("list[object]", content)
    elif content is None:
        items = []
    else:
        items = [content]
    structured = result.get("structuredContent")
    usable: dict[str, Any] = {
        **result,
        "content": [_content(item) for item in items],
        "isError": bool(result.get("isError")),
    }
    if structured is not None and not isinstance(structured, dict):
        del usable["structuredContent"]
        if not items:
            usable["content"] = [_text(_json(structured))]
    return usable


def _resource(value: object) -> dict[str, str] | None:
    """Return a resource with its text or its data; None if it has neither."""
    if not isinstance(value, dict):
        return None
    texts = {key: text for key, text in cast("dict[str, Any]", value).items() if isinstance(text, str)}
    content = next((key for key in ("text", "blob") if key in texts), "")
    if not content:
        return None
    about = {"mimeType": texts["mimeType"]} if "mimeType" in texts else {}
    return {"uri": texts.get("uri", ""), **about, content: texts[content]}


def _content(item: object) -> dict[str, Any]:
    """Return an item of a result with the fields that are used; an unknown kind becomes a note with its text."""
    if not isinstance(item, dict):
        return _text(_json(item))
    fields = cast("dict[str, Any]", item)
    kind = fields.get("type")
    texts = {key: value for key, value in fields.items() if isinstance(value, str)}
    if kind in ("image", "audio") and "data" in texts:
        media_type = texts.get("mimeType") or texts.get("media_type") or ""
        return {"type": kind, "data": texts["data"], "mimeType": media_type}
    if kind == "resource_link" and "uri" in texts:
        about = {key: texts[key] for key in ("title", "description", "mimeType") if key in texts}
        return {"type": kind, "uri": texts["uri"], "name": texts.get("name", ""), **about}
    if kind == "resource" and (resource := _resource(fields.get("resource"))) is not None:
        return {"type": kind, "resource": resource}
    if "text" in texts:
        return _text(texts["text"] if kind in ("text", None) else f"[{kind}]\n{texts['text']}")
    return _text(f"[{_json(kind)[:80]}, cannot be shown]")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": sanitize_text(text)}


def _codec(name: str) -> codecs.CodecInfo | None:
    """Return the codec named ENCODING. It encodes as UTF-8 and escapes line separators that JSON leaves unescaped."""
    if name != ENCODING:
        return None

    def encode(text: str, errors: str = "strict") -> tuple[bytes, int]:
        escaped = _ENDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        return sanitize_text(escaped).encode("utf-8", errors), len(text)

    def decode(data: Any, errors: str = "strict") -> tuple[str, int]:
        return RepairingDecoder(errors).decode(data, final=True), len(data)

    return codecs.CodecInfo(encode, decode, incrementaldecoder=RepairingDecoder, name=ENCODING)


codecs.register(_codec)
