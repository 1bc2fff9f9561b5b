"""The system's keyring, through the package `keyring`: imported when used, with a timeout and error isolation.

A keyring may be locked, broken or missing, and a backend is third-party code. It runs in a thread of its own. Only the type
of an exception is reported: its text may contain the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Generic, Protocol, TypeVar, cast

from nexus.errors import CredentialError, PackageMissing
from nexus.workspace.credentials.index import variable_of
from nexus.workspace.credentials.secret import Secret

T = TypeVar("T")

MIN_PRIORITY = 1
"""Priority that `keyring` recommends. Backends below it store nothing, lose everything, or use plain files."""


class KeyringStore(Protocol):
    """The used part of a `keyring` backend."""

    priority: float

    def get_password(self, service: str, username: str) -> str | None:
        """Return the value, or None."""
        ...

    def set_password(self, service: str, username: str, password: str) -> None:
        """Store a value."""
        ...

    def delete_password(self, service: str, username: str) -> None:
        """Delete a value. Raises if there is none."""
        ...


@dataclass(slots=True)
class _KeyringAnswer(Generic[T]):
    """Result of a keyring call."""

    value: list[T] = field(default_factory=list[T])
    error_type: str = ""
    unusable: str = ""


def fetch(service: str, name: str, timeout_s: float) -> Secret | None:
    """Return the keyring's value for a name, or None. Raises CredentialError, PackageMissing."""

    def call(backend: KeyringStore) -> Secret | None:
        value: object = backend.get_password(service, name)
        if value is not None and not isinstance(value, str):
            raise TypeError
        if value is not None:
            return Secret(value)
        return None

    return _ask(call, name, timeout_s)


def put(service: str, name: str, secret: Secret, timeout_s: float) -> None:
    """Store the value, and read it back, because some backends drop it. Raises as `fetch`."""

    def call(backend: KeyringStore) -> bool:
        backend.set_password(service, name, secret.reveal())
        return backend.get_password(service, name) == secret.reveal()

    if not _ask(call, name, timeout_s):
        raise CredentialError(f"system keyring did not keep the value ({_alternative(name)})", code="keyring_unusable")


def delete(service: str, name: str, timeout_s: float) -> bool:
    """Delete the value. Return whether there was one. Raises as `fetch`."""

    def call(backend: KeyringStore) -> bool:
        if backend.get_password(service, name) is None:
            return False
        backend.delete_password(service, name)
        return True

    return _ask(call, name, timeout_s)


def _ask(call: Callable[[KeyringStore], T], name: str, timeout_s: float) -> T:
    """Return the result of a call of the backend in a thread of its own."""
    try:
        import keyring
    except ImportError as error:
        raise PackageMissing("keyring", "the system's keyring", "keyring") from error
    answer: _KeyringAnswer[T] = _KeyringAnswer()

    def run() -> None:
        try:
            backend = cast("KeyringStore", keyring.get_keyring())
            # A chain of backends has the priority of its best one, which comes first.
            first = next(iter(getattr(backend, "backends", ())), backend)
            if first.priority < MIN_PRIORITY:
                kind = type(first)
                answer.unusable = f"no usable system keyring: found {kind.__module__}.{kind.__qualname__}"
            else:
                answer.value.append(call(backend))
        except Exception as error:  # noqa: BLE001 - a backend is third-party code, and its text may contain the value
            answer.error_type = type(error).__name__

    # A daemon: a backend that hangs must not keep the program from ending.
    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        text = f"system keyring did not answer within {timeout_s:g} seconds (is it locked, or waiting for input?"
        raise CredentialError(f"{text} Or {_alternative(name)})", code="keyring_unusable")
    if answer.value:
        return answer.value[0]
    why = answer.unusable or f"system keyring failed: {answer.error_type or 'no answer'}"
    raise CredentialError(f"{why} ({_alternative(name)})", code="keyring_unusable")


def _alternative(name: str) -> str:
    return f"set the variable {variable_of(name)}, or name your own: nexus config credential set {name} --variable VARIABLE"
