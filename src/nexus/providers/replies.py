"""Replies of any provider, as object or dict, read into an AgentResult."""

from __future__ import annotations

from nexus.errors import BadReply
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.received import as_mapping
from nexus.types.request import AgentResult

_READERS = (openai, openai_responses, anthropic, gemini)


def read_reply(reply: object) -> AgentResult:
    """Return the messages, tool calls, usage and stop reason of any provider's reply; an AgentResult unchanged.

    Raises BadReply for anything else.
    """
    if isinstance(reply, AgentResult):
        return reply
    name = type(reply).__name__
    body = as_mapping(reply)
    if body is None:
        raise BadReply(
            f"reply not readable: {name} is neither a provider's response nor an AgentResult (nothing was stored)"
        )
    for reader in _READERS:
        if reader.is_reply(body):
            return reader.reply(body)
    keys = ", ".join(sorted(map(str, body))[:8]) or "no keys"
    raise BadReply(
        f"reply not readable: {name} with {keys} is not a response of OpenAI (chat completions, Responses), Anthropic or "
        "Gemini (give the client's whole response or a nexus.AgentResult; nothing was stored)"
    )
