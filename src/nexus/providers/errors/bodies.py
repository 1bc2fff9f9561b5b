"""Bodies of errors, as each provider writes them."""

from __future__ import annotations

from typing import Any

from nexus.text.as_received import ReceivedFormat

Fields = dict[str, Any]

_ANTHROPIC_ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""Names of errors by HTTP status (docs.anthropic.com/en/api/errors)."""
_GEMINI_ERRORS = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
}  # fmt: skip
"""Names of errors by HTTP status (google.golang.org/grpc/codes)."""


def error_body(format_: ReceivedFormat, status: int, message: str, **fields: Any) -> Fields:
    """Return the body of an error; `fields` are added to it, for example `code`."""
    if format_ == "anthropic":
        kind = _ANTHROPIC_ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": message, **fields}}
    if format_ == "gemini":
        kind = _GEMINI_ERRORS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        return {"error": {"code": status, "message": message, "status": kind, **fields}}
    return {"error": {"message": message, "type": "error", "param": None, "code": None, **fields}}


def overflow_message(format_: ReceivedFormat, limit_tokens: int, prompt_tokens: int) -> tuple[str, Fields]:
    """Return a provider's words for a prompt that is too long, and further fields of the error."""
    code: Fields = {"type": "invalid_request_error", "code": "context_length_exceeded"}
    match format_:
        case "anthropic":
            return f"prompt is too long: {prompt_tokens} tokens > {limit_tokens} maximum", {}
        case "gemini":
            text = "The input token count ({}) exceeds the maximum number of tokens allowed ({})."
            return text.format(prompt_tokens, limit_tokens), {}
        case "responses":
            text = "Your input exceeds the context window of this model. Please adjust your input and try again."
            return text, {**code, "param": "input"}
        case "openai":
            text = (
                f"This model's maximum context length is {limit_tokens} tokens. However, your messages resulted in "
                f"{prompt_tokens} tokens. Please reduce the length of the messages."
            )
            return text, {**code, "param": "messages"}
