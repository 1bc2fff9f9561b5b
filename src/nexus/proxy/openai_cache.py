"""Fields of OpenAI's prompt cache that a request lacks: a key for its conversation, and a breakpoint behind its instructions.

OpenAI sets a breakpoint at the end of each prompt by itself. After a cut, and in the next conversation, only the one behind
the instructions still matches. Servers that only speak OpenAI's format may refuse these fields, so they go to OpenAI alone,
or to upstreams whose settings say so.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

from nexus.providers.prompt_cache import cache_rule
from nexus.providers.received import items_of, mapping
from nexus.proxy.requests import INSTRUCTION_ROLES, LIST_KEYS, ClientRequest, Fields, encoded
from nexus.text.as_received import ReceivedFormat
from nexus.tokens.model import Model

KEY = "prompt_cache_key"
BREAKPOINT = "prompt_cache_breakpoint"
OPTIONS = "prompt_cache_options"

_HOST = "openai.com"
_TEXT_TYPES: dict[str, str] = {"openai": "text", "responses": "input_text"}
_ID_CHARS = 32


def is_openai(url: str) -> bool:
    """Return True for an address of OpenAI's own servers."""
    host = urlsplit(url).hostname or ""
    return host == _HOST or host.endswith(f".{_HOST}")


def with_cache_fields(body: Fields, request: ClientRequest, model: Model) -> Fields:
    """Return a body with the fields of the cache that it lacks; the same object if it lacks none. Raises BadEvent.

    Args:
        body: The body to send, fitted or as received.
        request: The client's request; it begins like all requests of the conversation.
        model: Only models that are charged for writing to the cache take breakpoints (GPT-5.6 and later).
    """
    format_ = request.format
    changed = dict(body)
    if not body.get(KEY):
        changed[KEY] = _conversation_key(request.body, format_)
    rates = cache_rule(model).rates
    if rates.write > rates.input and not _has_breakpoints(request):
        changed[LIST_KEYS[format_]] = _with_breakpoint(body.get(LIST_KEYS[format_]), format_)
    return body if changed == body else changed


def _conversation_key(received: Fields, format_: ReceivedFormat) -> str:
    """Return a hash of what a conversation begins with, up to its first message that is no instruction."""
    beginning: list[Any] = [received.get("model"), received.get("instructions")]
    items = received.get(LIST_KEYS[format_])
    if isinstance(items, str):
        beginning.append(items)
    for item in items_of(items):
        beginning.append(item)
        if mapping(item).get("role") not in INSTRUCTION_ROLES:
            break
    return hashlib.sha256(encoded({"beginning": beginning})).hexdigest()[:_ID_CHARS]


def _has_breakpoints(request: ClientRequest) -> bool:
    return OPTIONS in request.body or f'"{BREAKPOINT}"'.encode() in request.text


def _with_breakpoint(items: Any, format_: ReceivedFormat) -> Any:
    """Return a list with a breakpoint on the last text of the instructions that it begins with."""
    last: int | None = None
    for index, item in enumerate(items_of(items)):
        if mapping(item).get("role") not in INSTRUCTION_ROLES:
            break
        last = index
    if last is None:
        return items
    changed = [*items_of(items)]
    message = mapping(changed[last])
    content = message.get("content")
    blocks: list[Any] = [*items_of(content)]
    if isinstance(content, str) and content:
        blocks = [{"type": _TEXT_TYPES[format_], "text": content}]
    if not blocks or not mapping(blocks[-1]).get("text"):
        return items
    blocks[-1] = {**mapping(blocks[-1]), BREAKPOINT: {"mode": "explicit"}}
    changed[last] = {**message, "content": blocks}
    return changed
