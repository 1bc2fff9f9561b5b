"""Replies of any provider, as object or dict, read into an AgentResult."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from nexus.errors import BadReply, NexusError
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.errors import error_text
from nexus.providers.received import as_mapping, items_of, text_of, without_nulls
from nexus.types.request import AgentResult, TokenUsage
from nexus.types.validation import checked

_READERS = (openai, openai_responses, anthropic, gemini)


def read_reply(reply: object) -> AgentResult:
    """Return the messages, tool calls, usage and stop reason of any provider's reply; an AgentResult unchanged.

    Raises BadReply for anything else.
    """
    if isinstance(reply, AgentResult):
        try:
            valid = checked(replace(reply, usage=TokenUsage()), AgentResult)
        except ValueError as error:
            text = f"AgentResult invalid: {error} (make messages with nexus.assistant(…) and nexus.tool(…); nothing was stored)"
            raise BadReply(text) from error
        with suppress(ValueError):  # a reply is not lost for implausible usage
            return replace(valid, usage=checked(reply.usage, TokenUsage))
        return valid
    name = type(reply).__name__
    body = as_mapping(reply)
    if isinstance(reply, str):
        raise BadReply(
            "reply not readable: it is a text (give the client's whole response, or "
            "nexus.AgentResult((nexus.assistant(text),)); nothing was stored)"
        )
    if _is_of_stream(reply, body):
        raise BadReply(
            f"reply not readable: {name} is a stream or a part of one (add each event to a nexus.StreamReader and give its "
            "reply(); nothing was stored)"
        )
    if body is None:
        raise BadReply(
            f"reply not readable: {name} is neither a provider's response nor an AgentResult (nothing was stored)"
        )
    try:
        body = without_nulls(body)  # as in a package's objects
        for reader in _READERS:
            if reader.is_reply(body):
                return reader.reply(body)
    except NexusError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, RecursionError):
            why = "nested too deeply"
        else:
            why = str(error)
        raise BadReply(f"reply not readable: {why} (give the client's whole response; nothing was stored)") from error
    if error := error_text(body.get("error")):
        raise BadReply(f"no reply: the provider reported: {error} (nothing was stored)")
    keys = ", ".join(sorted(map(str, body))[:8]) or "no keys"
    raise BadReply(
        f"reply not readable: {name} with {keys} is not a response of OpenAI (chat completions, Responses), Anthropic or "
        "Gemini (give the client's whole response or a nexus.AgentResult; nothing was stored)"
    )


_EVENTS = (
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
)


def _is_of_stream(reply: object, body: dict[str, Any] | None) -> bool:
    if body is None:
        return isinstance(reply, (Iterator, AsyncIterator))
    if body.get("object") == "chat.completion.chunk":
        return True
    kind = text_of(body.get("type"))
    if kind in _EVENTS or kind.startswith("response."):
        return True
    # Every finished answer of Gemini has a reason.
    candidates = [gemini.in_snake_case(candidate) for candidate in items_of(body.get("candidates"))]
    return bool(candidates) and "content" in candidates[0] and not candidates[0].get("finish_reason")
