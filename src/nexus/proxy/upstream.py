"""Requests to upstream servers, and their answers as they arrive."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from http.cookiejar import DefaultCookiePolicy

import httpx

HOP_HEADERS = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
"""Headers of one connection (RFC 9110, 7.6.1), which are not passed on."""

OWN_PREFIX = b"x-nexus-"
"""Beginning of the headers that are this proxy's own."""

_SET_ANEW = frozenset({b"host", b"content-length", b"accept-encoding", b"expect"})

Headers = list[tuple[bytes, bytes]]


def open_client() -> httpx.AsyncClient:
    """Return a client that waits for an answer as long as its caller does.

    Its package logs the address of each request, in which Gemini's clients have their key: it logs warnings alone now.
    """
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    timeout = httpx.Timeout(None, connect=15.0, write=60.0)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    client = httpx.AsyncClient(timeout=timeout, limits=limits, follow_redirects=False)
    client.headers.clear()
    # A server's cookies are its client's own: kept here, they would go out with the requests of all others.
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
    return client


def request_headers(received: Iterable[tuple[bytes, bytes]], via: str) -> Headers:
    """Return the headers to send upstream. Bodies are asked for without compression, so that they can be read.

    `via` is this proxy's name, by which it knows a request that it has sent to itself.
    """
    headers = [*received]
    listed = _named_in_connection(headers)
    headers_to_send = [
        (name, value)
        for name, value in headers
        if name not in HOP_HEADERS and name not in _SET_ANEW and name not in listed and not name.startswith(OWN_PREFIX)
    ]
    return [*headers_to_send, (b"accept-encoding", b"identity"), (b"via", b"1.1 " + via.encode())]


def response_headers(response: httpx.Response, *, keeps_length: bool) -> Headers:
    """Return the headers to send to the client; those that are this proxy's own are not the server's to set."""
    received = ((name.lower(), value) for name, value in response.headers.raw)
    headers = [(name, value) for name, value in received if not name.startswith(OWN_PREFIX)]
    listed = _named_in_connection(headers)
    dropped = HOP_HEADERS | listed | {b"date"}  # the server writes its own
    if not keeps_length:
        dropped |= {b"content-length"}
    return [(name, value) for name, value in headers if name not in dropped]


def build_request(
    client: httpx.AsyncClient, method: str, base_url: str, target: bytes, headers: Headers, data: bytes
) -> httpx.Request:
    """Return a request; its path and query are those that the client sent, byte for byte, behind the upstream's own path."""
    base = httpx.URL(base_url)
    path = base.raw_path.rstrip(b"/")
    if path and target.startswith(path + b"/"):
        path = b""  # the client's address has the upstream's path already
    url = base.copy_with(raw_path=path + target)
    return client.build_request(method, url, headers=headers, content=data if data or method == "POST" else None)


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    """Return the headers that `Connection` names."""
    values = (value for name, value in headers if name == b"connection")
    return frozenset(name.strip().lower() for value in values for name in value.split(b","))
