"""Signatures of Gemini's calls: those that were received, and the placeholder for calls that have none.

Gemini 3 refuses a step whose first call has no signature, also if another model made the call. The placeholder is the one
of https://ai.google.dev/gemini-api/docs/thought-signatures. A received signature is an empty `Thinking` before its call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nexus.text.as_received import received_format
from nexus.tokens.model_names import base_model_name, same_model
from nexus.types.message import Message, Thinking, ToolCall, is_reasoning_item

NO_SIGNATURE = "skip_thought_signature_validator"
"""The signature of a call that Gemini did not make."""

SIGNED_CALLS_RENDER = 7
"""Render version from which on calls are signed."""

_SIGNING = re.compile(r"gemini-(?:[3-9]|[1-9]\d|pro$|flash$|flash-lite$)")


def must_sign_calls(model: str) -> bool:
    """Return True if the model refuses calls without a signature: Gemini from version 3 on, and names without a version."""
    return _SIGNING.match(base_model_name(model)) is not None


def call_signatures(message: Message, model: str) -> list[str]:
    """Return the signature of each call that the model made; empty text for a call without one.

    If the model requires signatures, the first call has one in any case.
    """
    # Without an author, a signature is known to be Google's only in a chat completion.
    is_own = same_model(message.model, model) or (not message.model and received_format(message) == "openai")
    signatures = [signature if is_own else "" for signature in _signatures(message)]
    if signatures and must_sign_calls(model):
        signatures[0] = signatures[0] or NO_SIGNATURE
    return signatures


def _signatures(message: Message) -> Iterator[str]:
    signature = ""
    for part in message.parts:
        if isinstance(part, Thinking):
            is_of_call = not (part.text or part.redacted or is_reasoning_item(part))
            signature = part.signature if is_of_call else ""
            continue
        if isinstance(part, ToolCall):
            yield signature
        signature = ""
