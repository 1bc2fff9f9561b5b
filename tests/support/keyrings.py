"""Backends for the package `keyring`, as a system could have them: one that works, and some that do not."""

from __future__ import annotations

import threading
from typing import Any

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class Working(KeyringBackend):
    """Keeps values in memory, as a keyring does until it is locked."""

    priority: Any = 5

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.values.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.values[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self.values.pop((service, username), None) is None:
            raise PasswordDeleteError("not found")


class Plain(Working):
    """A file without encryption: its priority is below what is recommended."""

    priority: Any = 0.5


class Dropping(Working):
    """Takes values and keeps none."""

    def set_password(self, service: str, username: str, password: str) -> None:
        pass


class Garbled(Working):
    """Gives something that is no text."""

    def get_password(self, service: str, username: str) -> Any:
        return [service, username]


class Raising(Working):
    """Fails, and says the value when it does."""

    def get_password(self, service: str, username: str) -> str | None:
        raise RuntimeError(f"no {service} {username} {self.values}")

    def set_password(self, service: str, username: str, password: str) -> None:
        raise ValueError(f"cannot store {password!r} for {service} {username}")


class Hanging(Working):
    """Does not answer before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.let_go.wait(600)
        return super().get_password(service, username)
