"""Whatever an error is made of, `classify` answers, and looks at no more of it than it has to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nexus.providers.errors import OverflowVerdict, classify, learned_window
from nexus.providers.errors.extract import HEAD_CHARS, TAIL_CHARS, extract_details
from providers.errors.corpus import CASES

TOO_LONG = "prompt is too long: 213462 tokens > 200000 maximum"
KEYS = st.sampled_from(
    ["error", "message", "code", "type", "status", "status_code", "metadata", "raw", "body", "detail", "details", "n_ctx",
     "n_prompt_tokens", "errors", "response", "Error", "Message", "Code", "ValidationException", "input", "", "é"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["context_length_exceeded", "rate_limit_exceeded", "string_above_max_length", TOO_LONG, "429", "Too many tokens", "{", "[",
     '{"error": {"message": "', "\ud800", "\x00", "maximum context length is " + "9" * 5_000, "9" * 5_000, "٣٤ tokens"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=30) | st.binary(max_size=30)
BODIES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=5)
    | st.tuples(inner, inner),
    max_leaves=12,
)  # fmt: skip


class Refuses:
    """Every look at it is an error."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RecursionError


class RefusesToBePrinted(Exception):
    def __str__(self) -> str:
        raise KeyError("no")

    @property
    def message(self) -> str:
        raise MemoryError

    @property
    def body(self) -> Any:
        raise ValueError


class OddText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError

    def __len__(self) -> int:
        raise ValueError


class OddBytes(bytes):
    def __len__(self) -> int:
        raise ValueError

    def __getattribute__(self, name: str) -> Any:
        raise ValueError


class OddMapping(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise ValueError

    def __iter__(self) -> Iterator[str]:
        raise ValueError

    def __len__(self) -> int:
        return 1


class Endless(Mapping[str, Any]):
    """A mapping that never ends, each value the mapping itself."""

    def __getitem__(self, key: str) -> Any:
        return self

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "error"

    def __len__(self) -> int:
        return 1


def deep(levels: int) -> Any:
    body: Any = TOO_LONG
    for _ in range(levels):
        body = {"error": body}
    return body


def circle() -> Any:
    body: dict[str, Any] = {"code": 400}
    body["error"] = body
    return body


ODD = [
    Refuses(), RefusesToBePrinted(), RefusesToBePrinted(Refuses()), OddText(TOO_LONG), OddBytes(b"x"), OddMapping(), Endless(),
    {"error": Refuses()}, {"message": OddText("x")}, {"message": OddBytes(b"x")}, circle(), deep(100_000), None, object(), type,
    Exception, KeyboardInterrupt(), SystemExit(413), ExceptionGroup("g", [RefusesToBePrinted()] * 40), MagicMock(), float("nan"),
    10**5_000, -413, True, b"\xff\xfe", bytearray(b"\x00"), "[" * 60_000, '{"error":' * 10_000, SimpleNamespace(status_code="x"),
    (413, (413, (413,))), (), [[[[]]]], UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), lambda: None, iter([]), range(9),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(ODD)))
def test_classify_accepts_any_object(index: int) -> None:
    assert classify(ODD[index]).kind in ("overflow", "rate_limit", "other")


def test_details_read_before_failure_are_used() -> None:
    error = RefusesToBePrinted()
    error.status_code = 429  # type: ignore[attr-defined]
    error.response = {"error": Refuses(), "message": TOO_LONG}  # type: ignore[attr-defined]
    assert classify(error).source == "status:429"
    error.status_code = 400  # type: ignore[attr-defined]
    assert classify(error).limit == 200_000


@given(BODIES, st.text(max_size=10), st.integers(-5, 10**7))
def test_verdict_of_any_body_is_deterministic(body: Any, provider: str, window: int) -> None:
    found = classify(body, provider=provider, window=window)
    assert found == classify(body, provider=provider, window=window)
    assert found.source and min(found.limit, found.requested, found.input_tokens, found.output_tokens) >= 0
    assert bool(found.part) == (found.kind == "overflow")
    assert bool(found.limit_of) == (found.kind == "overflow" and found.limit > 0)
    assert learned_window(found) in (None, found.limit)
    found.text.encode()


@given(BODIES, st.sampled_from([400, 413, 422, 429, 500]))
def test_exception_with_any_body_has_verdict(body: Any, status: int) -> None:
    error = ValueError(body)
    error.status_code, error.body, error.__cause__ = status, body, RuntimeError(body)  # type: ignore[attr-defined]
    assert isinstance(classify(error), OverflowVerdict)


@given(BODIES)
@example({"status": "context_length_exceeded"})
def test_status_429_is_overflow_only_by_typed_code(body: Any) -> None:
    found = classify((429, body))
    field, _, value = found.source.partition(":")
    assert found.kind != "overflow" or (field != "text" and not value[:1].isdecimal())


@given(st.sampled_from(CASES), st.text(max_size=200))
def test_surrounding_words_do_not_raise(case: Any, text: str) -> None:
    assert classify(f"{text} {classify(case.error()).text} {text}").source


@pytest.mark.parametrize("size", [10_000_000])
@pytest.mark.parametrize(
    "filling",
    ["a", " ", "1", "1,", "1 ", "{", '\\"', "maximum context length is ", "context length max_tokens ", "limit "],
)
def test_only_ends_of_huge_text_are_read(filling: str, size: int) -> None:
    text = filling * (size // len(filling))
    for error in (text, ValueError(text), {"error": {"message": text, "code": text}}, text.encode()):
        assert all(len(one) <= HEAD_CHARS + TAIL_CHARS + 3 for said in extract_details(error) for one in said.texts)
        assert classify(error).kind in ("overflow", "other")


def test_number_of_values_and_errors_read_is_limited() -> None:
    body = {"errors": [{"message": f"no {number}"} for number in range(5_000)]}
    assert len(next(extract_details(body)).texts) <= 12
    group = ExceptionGroup("all", [ValueError(str(number)) for number in range(5_000)])
    assert len(list(extract_details(group))) == 16
    chain = ValueError(TOO_LONG)
    for _ in range(50):
        outer = RuntimeError("failed")
        outer.__cause__ = chain
        chain = outer  # type: ignore[assignment]
    assert classify(chain).kind == "other"
