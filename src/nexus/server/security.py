"""Access to the server: tokens and their tenants, the allowed values of Host and Origin, and rates.

A token is compared by its digest, and a server on loopback has one too: any page in a browser can reach loopback. Host
and Origin are checked against DNS rebinding and requests from other sites.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from nexus.errors import BadSetting, CredentialError

TOKEN_FILE = "server.token"  # noqa: S105 - a file's name
LOCAL_TENANT = "local"
"""Tenant of a token without a name: the ledger of the command line."""
MIN_TOKEN_CHARS = 16
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class TokenOwner(NamedTuple):
    """Whose a token is."""

    tenant: str
    principal: str = ""
    """Who speaks, as the policy names them; empty for the tenant itself."""


class Tokens:
    """The tokens of a server with their tenants.

    Args:
        tenants_by_token: The tenant of each token.
        principals: The principal of each token that is limited to one.

    Attributes:
        tenants: Names of all tenants.
        owners: Whose the tokens are, each once.
    """

    def __init__(self, tenants_by_token: Mapping[str, str], principals: Mapping[str, str] | None = None) -> None:
        if not tenants_by_token:
            raise BadSetting("server has no token (write a line `TOKEN TENANT` to the token file)")
        names = principals or {}
        self._owners = {
            _digest(token): TokenOwner(tenant, names.get(token, "")) for token, tenant in tenants_by_token.items()
        }
        self.tenants = tuple(dict.fromkeys(tenants_by_token.values()))
        self.owners = tuple(dict.fromkeys(self._owners.values()))

    def tenant_of(self, authorization: str) -> str | None:
        """Return the tenant of an `Authorization` header; None without a valid bearer token."""
        owner = self.owner_of(authorization)
        if owner is None:
            return None
        return owner.tenant

    def owner_of(self, authorization: str) -> TokenOwner | None:
        """Return whose the bearer token of an `Authorization` header is; None without a valid one."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        digest = _digest(token.strip())
        result = None
        for stored, owner in self._owners.items():  # all of them, so that the time does not depend on the token
            if secrets.compare_digest(stored, digest):
                result = owner
        return result


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def read_tokens(file: Path, *, with_principals: bool = False) -> Tokens:
    """Return the tokens of a file: one line `TOKEN` or `TOKEN TENANT` each; `#` begins a comment. Raises BadSetting.

    `with_principals` allows lines `TOKEN TENANT PRINCIPAL`. A server that does not limit such a token refuses the file.
    """
    try:
        text = file.read_text("utf-8")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"token file {file} not readable: {error}") from error
    if os.name == "posix" and mode & 0o077:
        raise BadSetting(f"token file {file} is readable by other users (chmod 600 {file})")
    most_words = 3 if with_principals else 2
    tenants: dict[str, str] = {}
    principals: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) > most_words or len(words[0]) < MIN_TOKEN_CHARS or words[0] in tenants:
            form = "TOKEN TENANT PRINCIPAL" if with_principals else "TOKEN TENANT"
            advice = f"write `{form}`, each token once and with {MIN_TOKEN_CHARS} characters or more"
            raise BadSetting(f"token file {file}, line {number} invalid ({advice})")
        tenants[words[0]] = words[1] if len(words) > 1 else LOCAL_TENANT
        if len(words) > 2:
            principals[words[0]] = words[2]
    if not tenants:
        raise BadSetting(f"token file {file} has no token (write a line `TOKEN TENANT`, or delete the file)")
    return Tokens(tenants, principals)


def make_token_file(file: Path) -> bool:
    """Write a new token to a file that only its owner may read, unless it exists; return whether it was written.

    Raises CredentialError.
    """
    draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.path.lexists(file):
            return False
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(f"{secrets.token_urlsafe(32)} {LOCAL_TENANT}\n")
            _put(draft, file)  # whole or not at all: a process may be killed, and another one start meanwhile
        finally:
            draft.unlink(missing_ok=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise CredentialError(
            f"token file {file} not written: {error.strerror or error}", code="credentials_not_saved"
        ) from error
    return True


def _put(draft: Path, file: Path) -> None:
    """Give a file its name. Raises FileExistsError, where the file system has links."""
    try:
        os.link(draft, file)
    except FileExistsError:
        raise
    except OSError:
        draft.rename(file)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class AllowedSites:
    """The values of `Host` and `Origin` that a server answers.

    Args:
        hosts: Names of the server, without a port. Loopback's names are always among them.
        origins: Origins of pages on other sites, such as `https://app.example.com`.

    Attributes:
        origins: The origins, in lower case.
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Collection[str] = ()) -> None:
        self._hosts = {*LOOPBACK_NAMES, *(host.lower().strip("[]") for host in hosts)}
        self.origins = tuple(origin.lower().rstrip("/") for origin in origins)

    def has_host(self, host: str) -> bool:
        """Return whether a `Host` header names this server."""
        return _host_name(host) in self._hosts

    def has_origin(self, origin: str, host: str) -> bool:
        """Return whether an `Origin` header is the server's own site, or an allowed one."""
        try:
            parts = urlsplit(origin.lower()) if origin.isascii() else None
        except ValueError:  # brackets that are no IPv6 address
            return False
        if parts is None or parts.scheme not in ("http", "https") or not parts.netloc:
            return False
        return parts.netloc == host.lower() or origin.lower() in self.origins


def _host_name(host: str) -> str:
    """Return the name of a `Host` header without its port; empty for none."""
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname
        _ = parts.port
    except ValueError:
        return ""
    is_plain = parts.netloc == host and parts.username is None and not set(host) & set("/?#@\\ ")
    if is_plain:
        return (name or "").lower()
    return ""


class RateLimit:
    """A token bucket for each tenant: `per_second` requests on average, `burst` at once."""

    def __init__(self, per_second: float, burst: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock_s = clock_s
        self._levels: dict[str, tuple[float, float]] = {}

    def wait_s(self, name: str, requests: int = 1) -> float:
        """Take requests from a bucket and return 0; if they are not there, return the seconds until they will be.

        More requests than a whole bucket empty it.
        """
        now = self._clock_s()
        level, at = self._levels.get(name, (float(self._burst), now))
        level = min(level + (now - at) * self._per_second, float(self._burst))
        needed = min(requests, self._burst)
        if level < needed:
            self._levels[name] = (level, now)
            return (needed - level) / self._per_second
        self._levels[name] = (level - needed, now)
        return 0.0
