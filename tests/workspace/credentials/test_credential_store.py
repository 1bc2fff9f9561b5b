"""Where a credential's value is found, what a check notes, and what happens when the system's keyring does not play along."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends import chainer, fail, null

import nexus
from nexus.errors import CredentialError, NexusError, NoCredential, PackageMissing
from nexus.workspace.credentials import index
from nexus.workspace.credentials.secret import Secret
from nexus.workspace.credentials.store import Credentials
from support.errors import has_code
from support.keyrings import Dropping, Garbled, Hanging, Plain, Raising, Working

CANARY = "canary-7f3a91"
OWN = "NEXUS_CREDENTIAL_TWITTER"
DECLARED = {"twitter": ("TWITTER_TOKEN",)}


@pytest.fixture
def variables() -> dict[str, str]:
    return {}


@pytest.fixture
def store(home: Path, variables: dict[str, str], ring: Working) -> Credentials:
    assert ring.values == {}
    return Credentials(home, variables, timeout_s=10)


def states(store: Credentials, declared: Any = None) -> dict[str, tuple[str, str, str]]:
    return {name: (one.where, one.variable, one.state) for name, one in store.entries(declared).items()}


def test_set_stores_value_in_keyring_and_name_in_index(store: Credentials, ring: Working) -> None:
    store.set("twitter", Secret(CANARY))
    assert ring.values == {(store.service, "twitter"): CANARY}
    assert store.get("twitter").reveal() == CANARY
    assert states(store) == {"twitter": ("keyring", "", "unchecked")}
    assert CANARY not in (store.home / index.FILE).read_text()


def test_another_home_has_separate_values(store: Credentials, tmp_path: Path) -> None:
    other = Credentials(tmp_path / "other", {})
    store.set("twitter", Secret(CANARY))
    other.set("twitter", Secret("another"))
    other.remove("twitter")
    assert store.get("twitter").reveal() == CANARY
    assert Credentials(Path.home() / ".nexus", {}).service == "nexus"


def test_own_variable_precedes_index_and_declared_variables(store: Credentials, variables: dict[str, str]) -> None:
    variables["TWITTER_TOKEN"] = "of the skill"
    assert store.get("twitter", DECLARED).reveal() == "of the skill"
    store.set("twitter", Secret("of the keyring"))
    assert store.get("twitter", DECLARED).reveal() == "of the keyring"
    variables[OWN] = "own"
    assert store.get("twitter", DECLARED).reveal() == "own"
    variables[OWN] = ""
    assert store.get("twitter", DECLARED).reveal() == "of the keyring"


def test_custom_variable_can_be_referenced(store: Credentials, variables: dict[str, str]) -> None:
    store.refer("twitter", "MY_KEY")
    assert states(store) == {"twitter": ("variable", "MY_KEY", "missing")}
    variables["MY_KEY"] = CANARY
    assert store.get("twitter").reveal() == CANARY
    assert states(store) == {"twitter": ("variable", "MY_KEY", "unchecked")}
    for wrong in (CANARY, "A=B", "a b", "", "A\nB", "../x"):
        with pytest.raises(CredentialError, check=has_code("bad_credential")) as caught:
            store.refer("twitter", wrong)
        assert not wrong or wrong not in str(caught.value)


def test_key_of_a_model_is_found_by_its_variable(store: Credentials) -> None:
    assert store.for_variable("OPEN_ROUTER_API_KEY") is None
    store.set("open-router", Secret(CANARY))
    assert store.for_variable("OPEN_ROUTER_API_KEY") == CANARY


def test_refer_does_not_replace_keyring_value(store: Credentials) -> None:
    store.set("twitter", Secret(CANARY))
    with pytest.raises(CredentialError, match="credential remove twitter", check=has_code("bad_credential")):
        store.refer("twitter", "MY_KEY")
    assert store.get("twitter").reveal() == CANARY


def test_check_records_state_and_keeps_broken(store: Credentials, ring: Working) -> None:
    store.set("twitter", Secret(CANARY))
    assert [(one.state, one.checked_ms) for one in store.check(["twitter"], 5)] == [("ok", 5)]
    store.mark("twitter", "broken", 6)
    assert [(one.state, one.checked_ms) for one in store.check(["twitter"], 7)] == [("broken", 6)]
    store.mark("twitter", "ok", 8)
    ring.values.clear()
    assert [one.state for one in store.check(["twitter"], 9)] == ["missing"]
    assert states(store) == {"twitter": ("keyring", "", "missing")}
    store.set("twitter", Secret(CANARY))
    assert states(store) == {"twitter": ("keyring", "", "unchecked")}


def test_check_finds_value_that_reappeared(store: Credentials, ring: Working) -> None:
    store.set("twitter", Secret(CANARY))
    kept = dict(ring.values)
    ring.values.clear()
    store.check(["twitter"], 1)
    ring.values.update(kept)
    assert [one.state for one in store.check(["twitter"], 2)] == ["ok"]


def test_state_of_variable_does_not_hide_keyring_value(store: Credentials, variables: dict[str, str]) -> None:
    store.set("twitter", Secret(CANARY))
    variables[OWN] = "refused"
    store.mark("twitter", "broken", 5)
    assert states(store) == {"twitter": ("variable", OWN, "broken")}
    del variables[OWN]
    assert states(store) == {"twitter": ("keyring", "", "unchecked")}
    assert store.get("twitter").reveal() == CANARY


def test_broken_mark_stays_while_variable_is_unset(store: Credentials, variables: dict[str, str]) -> None:
    store.refer("twitter", "MY_KEY")
    assert store.mark("twitter", "broken", 5).state == "broken"
    assert states(store)["twitter"] == ("variable", "MY_KEY", "missing")
    variables["MY_KEY"] = CANARY
    assert states(store)["twitter"] == ("variable", "MY_KEY", "broken")


def test_unknown_names_cannot_be_checked_marked_or_removed(store: Credentials, variables: dict[str, str]) -> None:
    for wrong in (
        lambda: store.get("none"),
        lambda: store.check(["none"], 1),
        lambda: store.mark("none", "ok", 1),
        lambda: store.remove("none"),
    ):
        with pytest.raises(NoCredential, match="none"):
            wrong()
    assert [one.state for one in store.check(["twitter"], 1, DECLARED)] == ["missing"]
    assert not (store.home / index.FILE).exists()
    variables[OWN] = CANARY
    with pytest.raises(NoCredential, match="variable"):
        store.remove("twitter")


def test_remove_deletes_value_unless_kept(store: Credentials, ring: Working) -> None:
    store.set("twitter", Secret(CANARY))
    assert store.remove("twitter")
    assert (ring.values, states(store)) == ({}, {})
    store.set("twitter", Secret(CANARY))
    assert not store.remove("twitter", keep_value=True)
    assert (list(ring.values.values()), states(store)) == ([CANARY], {})


def test_entry_with_missing_value_can_be_removed(store: Credentials, ring: Working) -> None:
    store.set("twitter", Secret(CANARY))
    ring.values.clear()
    assert not store.remove("twitter")
    assert states(store) == {}


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    ring = Hanging()
    yield ring
    ring.let_go.set()


UNUSABLE: dict[str, Callable[[], Any]] = {
    "fail": fail.Keyring, "null": null.Keyring, "plain file": Plain, "dropping": Dropping, "raising": Raising,
    "garbled": Garbled, "empty chain": chainer.ChainerBackend,
}  # fmt: skip


@pytest.mark.parametrize("kind", UNUSABLE)
def test_unusable_keyring_error_names_alternative(
    store: Credentials, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chainer.ChainerBackend, "backends", [Plain()])
    bad = UNUSABLE[kind]()
    keyring.set_keyring(bad)
    with pytest.raises(CredentialError, match=f"{OWN}.*--variable", check=has_code("keyring_unusable")) as caught:
        store.set("twitter", Secret(CANARY))
    assert CANARY not in str(caught.value)
    assert not (store.home / index.FILE).exists()
    assert not (isinstance(bad, Plain) and bad.values)


def test_unresponsive_keyring_times_out(home: Path, ring: Working, hanging: Hanging) -> None:
    Credentials(home, {}, timeout_s=600).set("twitter", Secret(CANARY))
    assert ring.values
    store = Credentials(home, {}, timeout_s=0.05)
    keyring.set_keyring(hanging)
    for wait in (lambda: store.get("twitter"), lambda: store.check(["twitter"], 1), lambda: store.remove("twitter")):
        with pytest.raises(CredentialError, match="did not answer", check=has_code("keyring_unusable")):
            wait()
    assert states(store) == {"twitter": ("keyring", "", "unchecked")}


def test_listing_does_not_ask_keyring(store: Credentials, hanging: Hanging) -> None:
    store.set("twitter", Secret(CANARY))
    keyring.set_keyring(hanging)
    assert states(store) == {"twitter": ("keyring", "", "unchecked")}


def test_variables_work_without_keyring_package(store: Credentials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(PackageMissing, match=r"\.\[keyring\]"):
        store.set("twitter", Secret(CANARY))
    monkeypatch.setitem(store._variables, OWN, CANARY)  # type: ignore[arg-type]
    assert store.get("twitter").reveal() == CANARY


@pytest.mark.parametrize("value", ["", "x" * 10_000_000, "a\0b"], ids=["empty", "10 MB", "nul"])
def test_empty_value_is_not_stored(store: Credentials, ring: Working, value: str) -> None:
    with pytest.raises(CredentialError, match="nothing was stored", check=has_code("bad_credential")):
        store.set("twitter", Secret(value))
    assert (ring.values, states(store)) == ({}, {})


def test_damaged_index_prevents_storing(store: Credentials, ring: Working) -> None:
    store.home.mkdir()
    (store.home / index.FILE).write_text("{")
    with pytest.raises(CredentialError):
        store.set("twitter", Secret(CANARY))
    assert ring.values == {}


def test_traceback_locals_never_contain_value(store: Credentials, variables: dict[str, str]) -> None:
    """Only frames of the package are looked at: a backend's own are its affair, and none is reached from an error."""
    secret = Secret(f"{CANARY}\0")
    variables[OWN] = CANARY
    raising = Secret(CANARY)

    def failing() -> None:
        keyring.set_keyring(Raising())
        store.set("other", raising)

    for fails in (
        lambda: store.set("twitter", secret),
        failing,
        lambda: store.check(["none"], 1),
        lambda: store.get("x"),
    ):
        with pytest.raises(NexusError) as caught:
            fails()
        told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        ours = [frame for frame in told.stack if Path(frame.filename).is_relative_to(Path(nexus.__file__).parent)]
        assert ours
        assert all(CANARY not in repr(frame.locals) for frame in ours)
        assert caught.value.__context__ is None
