"""The system's keyring, through the package `keyring`: imported when used, never waited for without end, never believed.

A keyring may be locked, broken or missing, and a backend is somebody else's code. It is asked in a thread of its own. Of
what it raises only the type is told: the text may have the value in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from typing import Generic, Protocol, TypeVar, cast

from nexus.errors import KeyringUnusable, PackageMissing
from nexus.workspace.credentials.names import variable_of
from nexus.workspace.credentials.secret import Secret

T = TypeVar("T")

LEAST_PRIORITY = 1
"""What `keyring` recommends of a backend. Below are those that do nothing, that lose everything, and plain files."""


class Backend(Protocol):
    """What is asked of a backend of `keyring`."""

    priority: float

    def get_password(self, service: str, username: str) -> str | None:
        """The value, None if there is none."""
        ...

    def set_password(self, service: str, username: str, password: str) -> None:
        """Stores a value."""
        ...

    def delete_password(self, service: str, username: str) -> None:
        """Deletes a value; raises if there is none."""
        ...


@dataclass(slots=True)
class _Answer(Generic[T]):
    """What came of asking: a value, or the name of what was raised, or why the keyring is none to use."""

    value: list[T] = field(default_factory=list[T])
    raised: str = ""
    unusable: str = ""


def fetch(service: str, name: str, timeout_s: float) -> Secret | None:
    """The value that the keyring has for a name; None if it has none. Raises KeyringUnusable, PackageMissing."""
    return _asked(lambda backend: _given(backend.get_password(service, name)), name, timeout_s)


def put(service: str, name: str, secret: Secret, timeout_s: float) -> None:
    """Stores the value, and reads it back: some backends drop what they are given. Raises as `fetch`."""
    if not _asked(lambda backend: _stored(backend, service, name, secret), name, timeout_s):
        raise KeyringUnusable(f"the system's keyring did not keep the value. {_instead(name)}")


def delete(service: str, name: str, timeout_s: float) -> bool:
    """Deletes the value. Whether there was one. Raises as `fetch`."""
    return _asked(lambda backend: _deleted(backend, service, name), name, timeout_s)


def _given(value: object) -> Secret | None:
    if value is not None and not isinstance(value, str):
        raise TypeError
    return Secret(value) if value is not None else None


def _stored(backend: Backend, service: str, name: str, secret: Secret) -> bool:
    backend.set_password(service, name, secret.reveal())
    return backend.get_password(service, name) == secret.reveal()


def _deleted(backend: Backend, service: str, name: str) -> bool:
    if backend.get_password(service, name) is None:
        return False
    backend.delete_password(service, name)
    return True


def _asked(question: Callable[[Backend], T], name: str, timeout_s: float) -> T:
    try:
        import keyring
    except ImportError as error:
        raise PackageMissing("keyring", "the system's keyring", "keyring") from error
    answer: _Answer[T] = _Answer()
    thread = Thread(
        target=_ask, args=(cast("Callable[[], Backend]", keyring.get_keyring), question, answer), daemon=True
    )
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        text = f"the system's keyring did not answer within {timeout_s:g} seconds: is it locked, or asking elsewhere?"
        raise KeyringUnusable(f"{text} {_instead(name)}")
    if answer.value:
        return answer.value[0]
    why = answer.unusable or f"the system's keyring failed ({answer.raised or 'it ended'})."
    raise KeyringUnusable(f"{why} {_instead(name)}")


def _ask(found: Callable[[], Backend], question: Callable[[Backend], T], answer: _Answer[T]) -> None:
    try:
        backend = found()
        first = next(iter(getattr(backend, "backends", ())), backend)
        if first.priority < LEAST_PRIORITY:
            kind = type(first)
            answer.unusable = f"this system has no keyring to use (found was {kind.__module__}.{kind.__qualname__})."
        else:
            answer.value.append(question(backend))
    except Exception as error:  # noqa: BLE001 - a backend is foreign code, and its text may hold the value
        answer.raised = type(error).__name__


def _instead(name: str) -> str:
    return (
        f"Set the variable {variable_of(name)} instead, or name one of your own: "
        f"`nexus credential set {name} --variable VARIABLE`"
    )
