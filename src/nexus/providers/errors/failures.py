"""Kinds of failed calls: one vocabulary for the errors of every client, and whether to call again.

`Turn.fail` stores the kind with the turn, and `nexus.failure_of` returns it for an error that was raised. Clients' errors
are recognized by status, class name and text (`extract`), their causes included, never by package.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from nexus.errors import LedgerBusy, LedgerUnavailable, ModelCallFailed, NexusError, SessionBusy
from nexus.providers.errors.classifier import classify
from nexus.providers.errors.error_rules import normalize_code
from nexus.providers.errors.extract import extract_details

FailureKind: TypeAlias = Literal[
    "rate_limit",
    "overloaded",
    "timeout",
    "connection",
    "auth",
    "overflow",
    "bad_request",
    "bad_reply",
    "content",
    "aborted",
    "limit",
    "error",
]

RETRYABLE = frozenset({"rate_limit", "overloaded", "timeout", "connection"})
"""Kinds of which the same call may succeed later."""

_STATUS_KINDS: dict[int, FailureKind] = {
    400: "bad_request", 401: "auth", 403: "auth", 404: "bad_request", 408: "timeout", 409: "overloaded",
    422: "bad_request", 425: "overloaded", 429: "rate_limit", 504: "timeout",
}  # fmt: skip
_CODE_KINDS: dict[str, FailureKind] = {
    "overloaded": "overloaded", "engineoverloaded": "overloaded", "server": "overloaded", "api": "overloaded",
    "internal": "overloaded", "internalserver": "overloaded", "unavailable": "overloaded",
    "serviceunavailable": "overloaded", "ratelimit": "rate_limit", "ratelimitexceeded": "rate_limit",
    "resourceexhausted": "rate_limit", "timeout": "timeout", "deadlineexceeded": "timeout",
    "authentication": "auth", "permission": "auth", "unauthenticated": "auth", "permissiondenied": "auth",
    "invalidrequest": "bad_request", "invalidargument": "bad_request", "notfound": "bad_request",
}  # fmt: skip
"""Kinds of errors within a stream, whose status is 200, by the error's code or type as `normalize_code` has it.

docs.anthropic.com/en/api/errors, platform.openai.com/docs/guides/error-codes, google.golang.org/grpc/codes
"""
_SERVER_ERROR = 500
_CLIENT_ERROR = 400
_CLASS_KINDS: tuple[tuple[re.Pattern[str], FailureKind], ...] = (
    (re.compile("Cancel|KeyboardInterrupt"), "aborted"),
    (re.compile("Timeout|TimedOut"), "timeout"),
    (re.compile("Connect|Network|RemoteProtocol|ReadError|WriteError|IncompleteRead"), "connection"),
    (re.compile("Authentication|PermissionDenied"), "auth"),
    (re.compile("Overloaded|ServiceUnavailable|InternalServer"), "overloaded"),
)
"""Beginnings and parts of class names of errors without a status: of openai, anthropic, google-genai, httpx, requests."""

_CONTENT_CODES = frozenset({"contentfilter", "contentpolicyviolation", "responsibleaipolicyviolation"})
"""Codes of requests that a provider's content filter rejected: Azure, OpenAI."""

_RETRY_DELAY = re.compile(r"""["']?retryDelay["']?: ?["'](\d{1,9}(?:\.\d{1,9})?)s""")
"""Gemini's time to wait, in the details of an error (`google.rpc.RetryInfo`)."""

_OWN_KINDS: dict[str, FailureKind] = {
    "bad_reply": "bad_reply",
    "context_overflow": "overflow",
    "incomplete_stream": "connection",
    "limit_reached": "limit",
    "no_credential": "auth",
}
"""Kinds of errors of Nexus, by their codes."""

_MILLISECONDS = 1_000


class Failure(Struct, frozen=True):
    """A failed call in the words of all providers."""

    kind: FailureKind
    retryable: bool
    """True if the same call may succeed later."""
    status: int = 0
    """HTTP status; 0 without one."""
    retry_after_s: float | None = None
    """Seconds after which the provider wants the next call; None if it named none."""
    text: str = ""
    """The error, for people."""


def failure_of(error: BaseException) -> Failure:
    """Return the kind of a failed call, and whether to try it again, for an error of any client or of Nexus."""
    if isinstance(error, ModelCallFailed):
        kind = cast("FailureKind", error.failure_kind)
        return Failure(kind, error.retryable, error.status, error.retry_after_s, str(error))
    status = next((details.status for details in extract_details(error) if details.status), 0)
    kind = _kind(error, status)
    busy = isinstance(error, (SessionBusy, LedgerBusy, LedgerUnavailable))
    text = str(error) or type(error).__name__
    return Failure(kind, busy or kind in RETRYABLE, status, _retry_after(error), text)


def _kind(error: BaseException, status: int) -> FailureKind:
    if isinstance(error, NexusError) and error.code in _OWN_KINDS:
        return _OWN_KINDS[error.code]
    verdict = classify(error)
    if verdict.kind != "other":
        return verdict.kind
    if normalize_code(verdict.source.partition(":")[2]) in _CONTENT_CODES:
        return "content"
    if status >= _CLIENT_ERROR:
        return _STATUS_KINDS.get(status, "overloaded" if status >= _SERVER_ERROR else "bad_request")
    codes = (
        normalize_code(code) for details in extract_details(error) for key, code in details.codes if key != "class"
    )
    for code in codes:
        if code in _CODE_KINDS:
            return _CODE_KINDS[code]
    for cause in _causes(error):
        if isinstance(cause, TimeoutError):
            return "timeout"
        if isinstance(cause, ConnectionError):
            return "connection"
        names = [kind.__name__ for kind in type(cause).__mro__]
        for pattern, kind in _CLASS_KINDS:
            if any(pattern.search(name) for name in names):
                return kind
    return "error"


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__
    return causes


def _retry_after(error: BaseException) -> float | None:
    """Return the seconds that a provider names, in its headers or its error; None without them, or if it is a date."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if isinstance(headers, Mapping):
        values = {str(name).lower(): value for name, value in cast("Mapping[object, object]", headers).items()}
        for name, unit in (("retry-after-ms", _MILLISECONDS), ("retry-after", 1)):
            text = str(values.get(name, ""))
            if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
                return float(text) / unit
    match = _RETRY_DELAY.search(str(getattr(error, "details", ""))[:20_000])
    if match:
        return float(match[1])
    return None
