"""The verdict on an error or a reply: did the request not fit, was it one too many, or is it about something else."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Kind: TypeAlias = Literal["overflow", "rate_limit", "other"]
TooMuch: TypeAlias = Literal["", "input", "output", "bytes"]


class Verdict(Struct, frozen=True):
    """What a provider said of a request, and which rule found it (`source`, as `code:…`, `text:…`, `status:…`).

    `part` of an overflow is what to make smaller: `input`; `output`, when the input fits and the tokens asked for the
    answer do not; or `bytes`, when the body was refused before anyone counted tokens. All numbers are tokens, 0 when
    they were not told: `limit` is what may be used at most (`limit_of` the whole window or the input alone),
    `requested` all that the request would have used, of it `input_tokens` and `output_tokens`. With `at_least`, the
    provider stopped counting: `requested` and `input_tokens` are lower bounds. A `rate_limit` has a limit and a request
    too, if told: when the request is the larger one, waiting never helps. `text` is the provider's own, shortened.
    """

    kind: Kind
    source: str
    part: TooMuch = ""
    limit: int = 0
    limit_of: Literal["", "window", "input"] = ""
    requested: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    at_least: bool = False
    text: str = ""


def learned_window(verdict: Verdict) -> int | None:
    """The model's real limit in tokens if the provider told it, else None.

    It is the window, or the input alone where `limit_of` says so. Rates and sizes in bytes are none.
    """
    told = verdict.kind == "overflow" and verdict.part != "bytes" and verdict.limit > 0
    return verdict.limit if told else None
