"""Session keys: kinds, names that can be one, and which role speaks in which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import BadSetting
from nexus.types.session_key import KINDS, MAX_CHARS, SessionKey, check, key, parse
from support.errors import has_code

BAD_NAMES = ["", " ann", "ann ", "a\nb", "a\x00b", "a\x1bb", "a\u2028b", "a\u202eb", "a\ud800b", "n" * (MAX_CHARS + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_label_with_known_prefix_has_kind_and_name(kind: str) -> None:
    assert parse(f"{kind}:telegram:42") == SessionKey(kind, "telegram:42")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("label", ["main", "", "DM:ann", "project:x", "dm", "a/b:dm:c", "\n", "x" * 9_999])
def test_label_without_known_prefix_is_free(label: str) -> None:
    assert parse(label) is None
    check(label, "worker")
    check(label, "manager")


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_invalid_name_raises_bad_session_key(kind: str, name: str) -> None:
    with pytest.raises(BadSetting, match=f"the part after '{kind}:'", check=has_code("bad_session_key")):
        parse(f"{kind}:{name}")


@pytest.mark.parametrize("name", ["../../etc/passwd", "*", "?", "[a]", "ann & bob", "会議", "👨‍👩‍👧", "%s", "'; DROP"])
def test_names_are_used_verbatim(name: str) -> None:
    assert key("dm", name).label == f"dm:{name}"


@given(st.sampled_from(KINDS), st.text(max_size=300))
def test_label_of_key_parses_to_same_key(kind: str, name: str) -> None:
    try:
        made = key(kind, name)  # pyright: ignore[reportArgumentType]
    except BadSetting:
        return
    assert parse(made.label) == made


@pytest.mark.parametrize("label", ["dm:ann", "group:ops", "system:nightly"])
def test_worker_is_rejected_in_sessions_of_people(label: str) -> None:
    """Document 002, "MA vs WA Context Differences": "Session history | Full MA thread | Only WA task context"."""
    check(label, "manager")
    check(label, "unified")
    with pytest.raises(BadSetting, match="role 'worker' not admitted in session", check=has_code("bad_session_key")):
        check(label, "worker")


def test_manager_is_rejected_in_worker_session() -> None:
    check("worker:report", "worker")
    check("worker:report", "unified")
    with pytest.raises(
        BadSetting, match="role 'manager' not admitted in session 'worker:report'", check=has_code("bad_session_key")
    ):
        check("worker:report", "manager")
