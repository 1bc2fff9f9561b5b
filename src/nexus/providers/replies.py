"""Replies of any provider, as object or dict, read into an AgentResult."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from nexus.errors import BadReply, NexusError
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.received import as_mapping
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
    if body is None:
        raise BadReply(
            f"reply not readable: {name} is neither a provider's response nor an AgentResult (nothing was stored)"
        )
    try:
        for reader in _READERS:
            if reader.is_reply(body):
                return reader.reply(body)
    except NexusError:
        raise
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadReply(f"reply not readable: {why} (give the client's whole response; nothing was stored)") from error
    keys = ", ".join(sorted(map(str, body))[:8]) or "no keys"
    raise BadReply(
        f"reply not readable: {name} with {keys} is not a response of OpenAI (chat completions, Responses), Anthropic or "
        "Gemini (give the client's whole response or a nexus.AgentResult; nothing was stored)"
    )
