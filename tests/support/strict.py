"""What the judges of the three providers' bodies have in common: wire text, strict types, remembered verdicts.

A body is judged as what goes over the wire: each message is turned to JSON once, and every verdict depends on that JSON
alone. So a verdict is remembered by the hash of the JSON, and a body that repeats 299 of its 300 messages costs one.

The official packages describe bodies with TypedDicts whose lists are `Iterable`: pydantic checks those lazily, at any
depth, and lets unknown keys pass. `typed` therefore tightens the schema that pydantic made of the official type: lazy
lists become lists, unknown keys are refused, and a union of dicts is told apart by its `role` or `type`, so that a
problem names the one form that was meant.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, SchemaValidator

Json: TypeAlias = dict[str, Any]
Verdict = TypeVar("Verdict")

REMEMBERED_AT_MOST = 200_000
"""Verdicts kept by one `Remembered` (a few hundred bytes each) before it starts anew."""

TOLD_PER_VALUE = 4
"""Type problems reported for one message: the deepest come first, and the rest say the same of other forms."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def is_dict(value: object) -> TypeGuard[Json]:
    """Whether the value is a JSON object (its keys are strings: it came from JSON, or is about to become JSON)."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether the value is a list."""
    return isinstance(value, list)


def wire(value: object) -> bytes:
    """The JSON of a value as sent, in UTF-8. Raises `ValueError` (NaN, surrogate), `TypeError`, `RecursionError`."""
    return _encode(value).encode()


class Split(NamedTuple):
    """A body taken apart: the JSON of all but its messages, the JSON of each message, and what cannot be sent."""

    envelope: bytes
    messages: list[bytes]
    problems: list[str]


def split(body: Json, key: str) -> Split:
    """The body's messages (under `key`) and the rest of it, each as wire JSON; `problems` if any of it is no JSON."""
    listed = body.get(key)
    if not is_list(listed):
        return Split(b"", [], [f"{key}: must be a list, is {type(listed).__name__}"])
    problems: list[str] = []
    messages = [_sendable(item, f"{key}[{index}]", problems) for index, item in enumerate(listed)]
    envelope = _sendable({name: value for name, value in body.items() if name != key}, "body", problems)
    if not messages:
        problems.append(f"{key}: is empty")
    return Split(envelope, messages, problems)


def _sendable(value: object, where: str, problems: list[str]) -> bytes:
    try:
        return wire(value)
    except UnicodeEncodeError as error:
        problems.append(f"{where}: cannot be sent as UTF-8 (lone surrogate): {error.reason}")
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(f"{where}: cannot be sent as JSON: {error}")
    return b"null"


class Remembered(Generic[Verdict]):
    """A judge of wire JSON that judges equal JSON once. It keeps verdicts by 128-bit hash, not the JSON itself."""

    def __init__(self, judge: Callable[[bytes], Verdict]) -> None:
        self._judge = judge
        self._known: dict[bytes, Verdict] = {}

    def __call__(self, sent: bytes) -> Verdict:
        """The verdict on this JSON."""
        key = hashlib.blake2b(sent, digest_size=16).digest()
        verdict = self._known.get(key)
        if verdict is None:
            if len(self._known) >= REMEMBERED_AT_MOST:
                self._known.clear()
            verdict = self._known[key] = self._judge(sent)
        return verdict


def typed(form: Any, value: object) -> list[str]:
    """What is wrong with a value by an official TypedDict (or a union of them), strictly and to its full depth."""
    try:
        _validator(form).validate_python(value, strict=True)
    except ValidationError as error:
        return told(error)
    return []


def typed_json(form: Any, sent: bytes) -> list[str]:
    """The same for wire JSON, where an enumeration's value stands for its member and text for bytes."""
    try:
        _validator(form).validate_json(sent, strict=True)
    except ValidationError as error:
        return told(error)
    return []


def told(error: ValidationError) -> list[str]:
    """The problems that pydantic found, deepest first: of a union, the form that was meant fails deepest."""
    details = error.errors(include_url=False, include_context=False)
    ordered = sorted(details, key=lambda detail: -len(detail["loc"]))
    return [_sentence(detail) for detail in ordered[:TOLD_PER_VALUE]]


def _sentence(detail: ErrorDetails) -> str:
    where = ".".join(str(step).partition("[")[0] for step in detail["loc"])  # without the list of a union's forms
    return f"{where or 'value'}: {detail['msg']} (type {detail['type']}, got {type(detail['input']).__name__})"


@cache
def _validator(form: Any) -> SchemaValidator:
    schema: Any = TypeAdapter(form).core_schema
    named = {item["ref"]: item for item in schema.get("definitions", [])}
    return SchemaValidator(_tighten(schema, named))


def _tighten(node: Any, named: dict[str, Any]) -> Any:
    if is_list(node):
        return [_tighten(item, named) for item in node]
    if not is_dict(node):
        return node
    if node.get("type") == "union":
        return _tell_apart({**node, "choices": [_tighten(form, named) for form in _forms(node)]}, named)
    tight: Json = {key: value if key == "metadata" else _tighten(value, named) for key, value in node.items()}
    if tight.get("type") == "generator":
        tight["type"] = "list"
    if tight.get("type") == "typed-dict" and tight.get("config", {}).get("extra_fields_behavior") != "allow":
        tight["extra_behavior"] = "forbid"  # one type says itself that it is open: a tool's JSON schema
    return tight


def _forms(union: Json) -> list[Json]:
    """The forms of a union; a tuple among them adds a label."""
    listed: list[Any] = union["choices"]
    return [form[0] if isinstance(form, tuple) else form for form in listed]


def _tell_apart(union: Json, named: dict[str, Any]) -> Json:
    """The union, its forms told apart by a key that all of them require with values of their own, if there is one."""
    forms = _forms(union)
    fitting = [form for form in forms if not _is_object_only(form, named)] or forms
    for key in ("role", "type"):
        tagged: Json = {}
        for form in fitting:
            tags = _tags(form, key, named)
            if not tags or not tagged.keys().isdisjoint(tags):
                break
            tagged.update(dict.fromkeys(tags, form))
        else:
            return {"type": "tagged-union", "discriminator": key, "choices": tagged}
    return {**union, "choices": fitting}


def _is_object_only(form: Json, named: dict[str, Any]) -> bool:
    """Whether only an object of the package fits (its reply classes stand in unions too): JSON never does."""
    form = _resolved(form, named)
    if form["type"] == "union":
        return all(_is_object_only(choice, named) for choice in _forms(form))
    return form["type"] in ("model", "is-instance")


def _tags(form: Json, key: str, named: dict[str, Any]) -> list[str]:
    """The values of a dict's field `key` that name this form; none if it is no dict or the field is not required."""
    form = _resolved(form, named)
    field: Json = form["fields"].get(key, {}) if form["type"] == "typed-dict" else {}
    literal: Json = field.get("schema", {})
    return list(literal["expected"]) if field.get("required") and literal.get("type") == "literal" else []


def _resolved(form: Json, named: dict[str, Any]) -> Json:
    while form["type"] == "definition-ref":
        form = named[form["schema_ref"]]
    return form


def repeated(names: list[str]) -> list[str]:
    """The names that stand in the list more than once, each told once, in order."""
    return [name for index, name in enumerate(names) if names.index(name) == index and names.count(name) > 1]


def is_base64(data: str) -> bool:
    """Whether this is non-empty standard base64 with its padding (RFC 4648, section 4)."""
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return False
