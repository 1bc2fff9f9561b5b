"""Each credential has one variable, and each variable one credential."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.errors import CredentialError
from nexus.workspace.credentials.index import check_name, is_name, is_valid_for, name_of, variable_of
from support.errors import has_code

NAMES = st.from_regex(r"[a-z0-9]{1,12}(-[a-z0-9]{1,12}){0,3}", fullmatch=True)


@given(NAMES)
def test_name_round_trips_through_its_variable(name: str) -> None:
    assert name_of(variable_of(name)) == name


@given(NAMES, NAMES)
def test_two_names_never_share_a_variable(one: str, other: str) -> None:
    assert (variable_of(one) == variable_of(other)) == (one == other)


@given(st.text())
def test_variable_belongs_to_one_credential_or_none(text: str) -> None:
    name = name_of(f"NEXUS_CREDENTIAL_{text}")
    assert name is None or variable_of(name) == f"NEXUS_CREDENTIAL_{text}"


HOSTILE = ["", "../../etc/passwd", "a/b", "a\\b", "C:", "~", "a\nb", "a\0b", "-a", "a-", "a--b", "A", "a_b", "a b", "ä", "x" * 65, "٣", "a\n"]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_name_is_rejected_without_being_shown(name: str) -> None:
    with pytest.raises(CredentialError, check=has_code("bad_credential")) as caught:
        check_name(name)
    assert len(name) < 3 or name not in str(caught.value)


def test_declared_variable_matches_credential_by_prefix() -> None:
    assert is_valid_for("TWITTER_API_KEY", "twitter")
    assert is_valid_for("OPENAI_TEAM", "openai-team")
    assert not is_valid_for("TWITTERING", "twitter")
    assert not is_valid_for("PATH", "twitter")
    assert is_name("twitter")
