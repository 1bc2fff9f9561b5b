"""Address of a ledger in PostgreSQL: its URL, the schema, and its form for messages, without passwords."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

SCHEMES = ("postgresql://", "postgres://")

SCHEMA = "nexus"
"""The schema of the ledger's tables, unless the URL's search path names another one."""

_SEARCH_PATH = re.compile(r"""search_path\s*=\s*["']?([^\s,"'\\]+)""")
_SECRETS = frozenset({"password", "sslpassword", "passfile", "sslkey"})


class Address(NamedTuple):
    """URL to connect to, the ledger's schema, and the URL without secrets."""

    url: str
    schema: str
    place: str


def is_address(text: object) -> bool:
    """Return whether a ledger's name is the URL of a PostgreSQL database."""
    if isinstance(text, str):
        return str(text).startswith(SCHEMES)
    return False


def parse_address(url: str) -> Address:
    """Return the address of a ledger. Nothing is connected."""
    parts = urlsplit(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    paths = [match[1] for name, value in options if name == "options" and (match := _SEARCH_PATH.search(value))]
    user, at, host = parts.netloc.rpartition("@")
    harmless = [(name, value) for name, value in options if name not in _SECRETS]
    netloc = f"{user.partition(':')[0]}{at}{host}"
    query = urlencode(harmless, quote_via=quote, safe="/=, -")
    place = urlunsplit((parts.scheme, netloc, parts.path, query, ""))
    if not netloc:  # which urlunsplit leaves out, with its slashes
        place = place.replace(":", "://", 1) if not place.startswith(f"{parts.scheme}://") else place
    return Address(url, paths[-1] if paths else SCHEMA, place)
