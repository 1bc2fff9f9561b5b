"""Stop reasons of all providers in one vocabulary. `AgentResult.provider_stop_reason` has the provider's own word.

| Neutral | Chat completions | Responses | Anthropic | Gemini |
|---|---|---|---|---|
| `end_turn` | stop | completed | end_turn, stop_sequence | STOP |
| `tool_use` | tool_calls, function_call | completed, with calls | tool_use | STOP, with calls |
| `max_tokens` | length | max_output_tokens, max_messages | max_tokens, model_context_window_exceeded | MAX_TOKENS |
| `pause_turn` | | steered | pause_turn | CONTINUATION |
| `content_filter` | content_filter | content_filter | | SAFETY, RECITATION, BLOCKLIST, SPII and the like |
| `refusal` | | | refusal | |
| `aborted` | | cancelled | | |
| `error` | error | failed | | MALFORMED_FUNCTION_CALL and the like |

`timeout` and `aborted` are for agents, whose results have no provider. A withheld answer is no end of a turn, so it has
words of its own: `content_filter` if a filter took it, `refusal` if the model gave none. A paused turn goes on when its
messages are sent again. Any other word is returned unchanged, because nothing is known about it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

StopReason: TypeAlias = Literal[
    "end_turn",
    "max_tokens",
    "tool_use",
    "pause_turn",
    "content_filter",
    "refusal",
    "timeout",
    "aborted",
    "error",
]

_WORDS: dict[StopReason, str] = {
    "end_turn": "end_turn stop stop_sequence completed eos end",
    "max_tokens": "max_tokens length max_output_tokens max_messages model_context_window_exceeded model_length",
    "tool_use": "tool_use tool_calls function_call",
    "pause_turn": "pause_turn steered continuation",
    "content_filter": "content_filter safety recitation language blocklist prohibited_content spii image_safety "
    "image_prohibited_content image_recitation image_other no_image model_armor",
    "refusal": "refusal",
    "timeout": "timeout",
    "aborted": "aborted cancelled",
    "error": "error failed other incomplete finish_reason_unspecified escalation pup_limited_disabled malformed_function_call unexpected_tool_call too_many_tool_calls "
    "missing_thought_signature malformed_response",
}
_NEUTRAL = {provider_reason: reason for reason, words in _WORDS.items() for provider_reason in words.split()}


def stop_reason(reason: str, *, has_calls: bool = False) -> str:
    """Return the neutral word for a provider's or a neutral one. Not all providers report calls: pass `has_calls`."""
    reason = _NEUTRAL.get(reason.lower(), reason)
    if has_calls and reason == "end_turn":
        return "tool_use"
    return reason
