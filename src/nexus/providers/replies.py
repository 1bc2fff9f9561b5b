"""A reply of any of the providers, as object or dict, to an AgentResult."""

from __future__ import annotations

from nexus.errors import BadReply
from nexus.providers import anthropic_read, gemini_read, openai_read
from nexus.providers import openai_responses_read as responses_read
from nexus.providers.received import as_mapping
from nexus.types.request import AgentResult

_READERS = (openai_read, responses_read, anthropic_read, gemini_read)


def read_reply(reply: object) -> AgentResult:
    """The reply's messages, tool calls, usage and stop reason, whichever provider it is from; an AgentResult as it is.

    Raises BadReply, naming what was given.
    """
    if isinstance(reply, AgentResult):
        return reply
    body = as_mapping(reply)
    if body is None:
        raise BadReply(
            f"a {type(reply).__name__} is neither a provider's response nor an AgentResult; nothing was stored"
        )
    for reader in _READERS:
        if reader.is_reply(body):
            return reader.reply(body)
    keys = ", ".join(sorted(map(str, body))[:8]) or "nothing"
    raise BadReply(
        f"a {type(reply).__name__} with {keys} is no response of OpenAI (chat completions, Responses), Anthropic "
        "messages or Gemini; give the client's whole response (not one message of it), or a nexus.AgentResult. Nothing was stored"
    )
