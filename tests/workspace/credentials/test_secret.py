"""A secret shows itself to nothing but `reveal`."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import pprint
import traceback
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from nexus.errors import CredentialError
from nexus.workspace.credentials.secret import MAX_BYTES, Secret, check_secret
from support.errors import has_code

CANARY = "canary-7f3a91"


@dataclass
class Holder:
    secret: Secret


class Holding(msgspec.Struct):
    secret: Secret


def shown() -> list[str]:
    secret = Secret(CANARY)
    record = logging.LogRecord("x", 20, "x", 1, "value %s %r", (secret, secret), None)
    return [
        repr(secret), str(secret), f"{secret}", f"{secret!r:>60}", f"{secret:>40}", "%s %r" % (secret, secret),  # noqa: UP031
        "{}".format(secret), repr([secret]), repr({"a": secret}), repr(Holder(secret)), repr(Holding(secret)),  # noqa: UP032
        pprint.pformat(vars(Holder(secret))), pretty_repr(Holder(secret)), record.getMessage(),
        json.dumps({"a": secret}, default=str), msgspec.json.encode([secret], enc_hook=str).decode(),
        repr(msgspec.to_builtins(Holding(secret), enc_hook=str)),
    ]  # fmt: skip


def test_secret_is_hidden_in_every_representation() -> None:
    texts = shown()
    assert all(CANARY not in text for text in texts)
    assert all("[secret]" in text for text in texts)
    assert Secret(CANARY).reveal() == CANARY


@pytest.mark.parametrize("write", [pickle.dumps, copy.copy, copy.deepcopy, msgspec.json.encode, msgspec.msgpack.encode, json.dumps, vars, lambda one: one.__getstate__()])  # fmt: skip
def test_secret_cannot_be_serialized(write: object) -> None:
    with pytest.raises(TypeError) as caught:
        write(Secret(CANARY))  # type: ignore[operator]
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("a\0b", "NUL"),
        ("x" * 10_000_000, "longer than 65,536 bytes"),
        ("é" * (MAX_BYTES // 2 + 1), "longer than 65,536 bytes"),
        ("caf\udce9", "not valid UTF-8"),
    ],
    ids=["empty", "blank", "nul", "10 MB", "bytes", "surrogate"],
)
def test_impossible_value_is_rejected_without_being_shown(value: str, problem: str) -> None:
    secret = Secret(f"{value}")
    with pytest.raises(CredentialError, match=problem, check=has_code("bad_credential")) as caught:
        check_secret(secret)
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack[1:]
    assert frames
    assert all("secret" not in (frame.locals or {}) or frame.locals["secret"] == "Secret([secret])" for frame in frames)
    assert not any(repr(value) in (frame.locals or {}).values() for frame in frames)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=200))
def test_other_texts_are_kept_unchanged(value: str) -> None:
    if value.strip():
        assert check_secret(Secret(value)).reveal() == value
