"""Requests that must be refused, each with its status, a JSON body, and no effect."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from nexus.errors import BadSetting, ServerCallFailed
from nexus.server.app import HttpLimits
from nexus.server.http import open_socket
from nexus.server.security import AllowedSites, RateLimit, make_token_file, read_tokens
from nexus.testing.model_server import reply
from server.running import TOKEN, Running, running

OTHER = "token-of-another-tenant"
LIMITS = HttpLimits(body_bytes=50_000, body_s=0.5, streams=1)
CREATE = b'{"jsonrpc": "2.0", "id": 1, "method": "create_agent", "params": {"agent_id": "made"}}'
DISCOVER = b'{"jsonrpc": "2.0", "id": 1, "method": "rpc.discover"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    tokens = {TOKEN: "local", OTHER: "other"}
    with running(tmp_path_factory.mktemp("hostile"), tokens=tokens, limits=LIMITS) as server:
        server.client().create_agent("mine").send("My secret is 4711.")
        yield server


def host_of(server: Running) -> str:
    return urlsplit(server.url).netloc


Headers = dict[str, Any]
HTTP: dict[str, tuple[int, str, str, bytes | None, Headers]] = {
    # Host and Origin
    "rebound name": (421, "POST", "/rpc", CREATE, {"Host": "evil.example"}),
    "rebound name on health": (421, "GET", "/health", None, {"Host": "evil.example:80"}),
    "name that begins like loopback": (421, "POST", "/rpc", CREATE, {"Host": "127.0.0.1.evil.example"}),
    "host with a user": (421, "POST", "/rpc", CREATE, {"Host": "localhost@evil.example"}),
    "host with a path": (421, "POST", "/rpc", CREATE, {"Host": "localhost/x"}),
    "other loopback address": (421, "POST", "/rpc", CREATE, {"Host": "127.0.0.2"}),
    "empty host": (421, "POST", "/rpc", CREATE, {"Host": ""}),
    "host with a bad port": (421, "POST", "/rpc", CREATE, {"Host": "localhost:x"}),
    "name of loopback with a dot": (421, "POST", "/rpc", CREATE, {"Host": "localhost."}),
    "short loopback address": (421, "POST", "/rpc", CREATE, {"Host": "127.1"}),
    "number of loopback": (421, "POST", "/rpc", CREATE, {"Host": "2130706433"}),
    "address of all": (421, "POST", "/rpc", CREATE, {"Host": "0.0.0.0"}),
    "mapped loopback address": (421, "POST", "/rpc", CREATE, {"Host": "[::ffff:127.0.0.1]"}),
    "name that resolves to loopback": (421, "POST", "/rpc", CREATE, {"Host": "127.0.0.1.nip.io"}),
    "host with a backslash": (421, "POST", "/rpc", CREATE, {"Host": "evil.example\\@localhost"}),
    "two hosts in one": (421, "POST", "/rpc", CREATE, {"Host": "localhost, evil.example"}),
    "host that is not ASCII": (421, "POST", "/rpc", CREATE, {"Host": "loc\xe4lhost"}),
    "unclosed address": (421, "POST", "/rpc", CREATE, {"Host": "[::1"}),
    "rebound name on events": (421, "GET", "/agent/mine/events", None, {"Host": "evil.example"}),
    "origin of another site": (403, "POST", "/rpc", CREATE, {"Origin": "https://evil.example"}),
    "origin null": (403, "POST", "/rpc", CREATE, {"Origin": "null"}),
    "origin of another port": (403, "POST", "/rpc", CREATE, {"Origin": "http://127.0.0.1:1"}),
    "origin of another name": (403, "POST", "/rpc", CREATE, {"Origin": "http://localhost:1"}),
    "origin of a file": (403, "POST", "/rpc", CREATE, {"Origin": "file://"}),
    "preflight of another site": (403, "OPTIONS", "/rpc", None, {"Origin": "https://evil.example"}),
    "origin that is no address": (403, "POST", "/rpc", CREATE, {"Origin": "http://[::1"}),
    "origin that is not ASCII": (403, "POST", "/rpc", CREATE, {"Origin": "http://loc\xe4lhost"}),
    "origin that begins like loopback": (403, "POST", "/rpc", CREATE, {"Origin": "http://127.0.0.1.evil.example"}),
    "origin with a user": (403, "POST", "/rpc", CREATE, {"Origin": "http://localhost@evil.example"}),
    "empty origin": (403, "POST", "/rpc", CREATE, {"Origin": ""}),
    "origin of an extension": (403, "POST", "/rpc", CREATE, {"Origin": "chrome-extension://abc"}),
    "origin of another site on health": (403, "GET", "/health", None, {"Origin": "https://evil.example"}),
    "origin of another site on events": (403, "GET", "/agent/mine/events", None, {"Origin": "https://evil.example"}),
    # token
    "no token": (401, "POST", "/rpc", CREATE, {"Authorization": None}),
    "empty token": (401, "POST", "/rpc", CREATE, {"Authorization": "Bearer "}),
    "wrong token": (401, "POST", "/rpc", CREATE, {"Authorization": f"Bearer {TOKEN}x"}),
    "half a token": (401, "POST", "/rpc", CREATE, {"Authorization": f"Bearer {TOKEN[:-1]}"}),
    "token without scheme": (401, "POST", "/rpc", CREATE, {"Authorization": TOKEN}),
    "basic scheme": (401, "POST", "/rpc", CREATE, {"Authorization": f"Basic {TOKEN}"}),
    "two tokens": (401, "POST", "/rpc", CREATE, {"Authorization": f"Bearer {TOKEN}, Bearer {OTHER}"}),
    "token that is not ASCII": (401, "POST", "/rpc", CREATE, {"Authorization": "Bearer t\xf6ken"}),
    "token in the query": (401, "POST", f"/rpc?token={TOKEN}", CREATE, {"Authorization": None}),
    "token in a cookie": (401, "POST", "/rpc", CREATE, {"Authorization": None, "Cookie": f"token={TOKEN}"}),
    "events without token": (401, "GET", "/agent/mine/events", None, {"Authorization": None}),
    "metrics without token": (401, "GET", "/metrics", None, {"Authorization": None}),
    "token in upper case": (401, "POST", "/rpc", CREATE, {"Authorization": f"Bearer {TOKEN.upper()}"}),
    "token with a pattern": (401, "POST", "/rpc", CREATE, {"Authorization": "Bearer *"}),
    "token of 10,000 characters": (401, "POST", "/rpc", CREATE, {"Authorization": "Bearer " + "x" * 10_000}),
    "token as a form": (401, "POST", "/rpc", CREATE, {"Authorization": None, "X-Api-Key": TOKEN}),
    "token of the proxy": (
        401,
        "POST",
        "/rpc",
        CREATE,
        {"Authorization": None, "Proxy-Authorization": f"Bearer {TOKEN}"},
    ),
    # paths and methods
    "unknown path": (404, "POST", "/admin", CREATE, {}),
    "path upward": (404, "POST", "/agent/../rpc/x", CREATE, {}),
    "slash at the end": (404, "POST", "/rpc/", CREATE, {}),
    "unknown agent": (404, "POST", "/agent/nobody", DISCOVER, {}),
    "unknown agent's events": (404, "GET", "/agent/nobody/events", None, {}),
    "agent with a NUL": (404, "POST", "/agent/a%00b", DISCOVER, {}),
    "agent upward": (404, "POST", "/agent/..", DISCOVER, {}),
    "agent upward to rpc": (404, "POST", "/agent/../rpc", DISCOVER, {}),
    "agent upward, encoded": (404, "POST", "/agent/%2e%2e", DISCOVER, {}),
    "agent upward with an encoded slash": (404, "POST", "/agent/..%2frpc", DISCOVER, {}),
    "agent upward, all encoded": (404, "POST", "/agent/%2e%2e%2frpc", DISCOVER, {}),
    "agent upward to a file": (404, "POST", "/agent/..%2f..%2f..%2fetc%2fpasswd", DISCOVER, {}),
    "agent upward, encoded twice": (404, "POST", "/agent/%252e%252e%252fmine", DISCOVER, {}),
    "agent upward with backslashes": (404, "POST", "/agent/..\\..\\mine", DISCOVER, {}),
    "agent upward with encoded backslashes": (404, "POST", "/agent/..%5c..%5cmine", DISCOVER, {}),
    "agent upward in overlong UTF-8": (404, "POST", "/agent/%c0%ae%c0%ae%c0%afmine", DISCOVER, {}),
    "agent behind a dot": (404, "POST", "/agent/./mine", DISCOVER, {}),
    "agent behind an encoded slash": (404, "POST", "/agent/%2fmine", DISCOVER, {}),
    "agent from another one": (404, "POST", "/agent/other/../mine", DISCOVER, {}),
    "agent with a NUL at the end": (404, "POST", "/agent/mine%00", DISCOVER, {}),
    "agent with a line break": (404, "POST", "/agent/mine%0d%0aX-Evil:%201", DISCOVER, {}),
    "agent with a space at the end": (404, "POST", "/agent/mine%20", DISCOVER, {}),
    "agent in upper case": (404, "POST", "/agent/MINE", DISCOVER, {}),
    "agent in wide letters": (404, "POST", "/agent/%ef%bd%8dine", DISCOVER, {}),
    "agent with an invisible character": (404, "POST", "/agent/mine%e2%80%8b", DISCOVER, {}),
    "agent as a pattern": (404, "POST", "/agent/%25", DISCOVER, {}),
    "agent that is not UTF-8": (404, "POST", "/agent/%ff%fe", DISCOVER, {}),
    "agent of 10,000 characters": (404, "POST", "/agent/" + "x" * 10_000, DISCOVER, {}),
    "events upward": (404, "GET", "/agent/..%2fmine/events", None, {}),
    "events of an agent with a path": (404, "GET", "/agent/mine/../mine/events", None, {}),
    "settings of an agent as an agent": (404, "POST", "/agent/nexus:agent:mine", DISCOVER, {}),
    "agent of another tenant": (404, "POST", "/agent/mine", DISCOVER, {"Authorization": f"Bearer {OTHER}"}),
    "events of another tenant": (404, "GET", "/agent/mine/events", None, {"Authorization": f"Bearer {OTHER}"}),
    "GET that would change": (405, "GET", "/rpc", None, {}),
    "GET of an agent": (405, "GET", "/agent/mine", None, {}),
    "PUT": (405, "PUT", "/rpc", CREATE, {}),
    "DELETE of an agent": (405, "DELETE", "/agent/mine", None, {}),
    "POST to events": (405, "POST", "/agent/mine/events", CREATE, {}),
    # bodies
    "text of a form": (415, "POST", "/rpc", CREATE, {"Content-Type": "text/plain"}),
    "form": (415, "POST", "/rpc", CREATE, {"Content-Type": "application/x-www-form-urlencoded"}),
    "no media type": (415, "POST", "/rpc", CREATE, {"Content-Type": None}),
    "other charset": (415, "POST", "/rpc", CREATE, {"Content-Type": "application/json; charset=utf-16"}),
    "media type that begins alike": (415, "POST", "/rpc", CREATE, {"Content-Type": "application/jsonp"}),
    "compressed body": (415, "POST", "/rpc", CREATE, {"Content-Encoding": "gzip"}),
    "large body": (413, "POST", "/rpc", b" " * 50_001, {}),
    "empty body": (400, "POST", "/rpc", b"", {}),
    "no JSON": (400, "POST", "/rpc", b"{", {}),
    "deep JSON": (400, "POST", "/rpc", b"[" * 100 + b"]" * 100, {}),
    "empty batch": (400, "POST", "/rpc", b"[]", {}),
    "deep JSON in params": (400, "POST", "/rpc", CREATE.replace(b'"made"', b"[" * 63 + b"]" * 63), {}),
    "40,000 levels": (400, "POST", "/rpc", b"[" * 40_000, {}),
    "40,000 levels of objects": (400, "POST", "/rpc", b'{"":' * 10_000, {}),
    "batch of 10,000": (400, "POST", "/rpc", b"[%s]" % b",".join([b"{}"] * 10_000), {}),
    "batch of batches": (400, "POST", "/rpc", b"[%s]" % b",".join([b"[]"] * 10_000), {}),
    "integer of 10,000 digits": (400, "POST", "/rpc", CREATE.replace(b'"made"', b"9" * 10_000), {}),
    "half a character": (400, "POST", "/rpc", CREATE.replace(b'"made"', b'"\\ud800"'), {}),
    "text that is not UTF-8": (400, "POST", "/rpc", CREATE.replace(b"made", b"\xff"), {}),
    "two values": (400, "POST", "/rpc", CREATE + CREATE, {}),
    "comment": (400, "POST", "/rpc", b"/* */" + CREATE, {}),
    "UTF-16": (400, "POST", "/rpc", CREATE.decode().encode("utf-16"), {}),
    "byte order mark": (400, "POST", "/rpc", b"\xef\xbb\xbf" + CREATE, {}),
    "batch of 101": (400, "POST", "/rpc", b"[%s]" % b",".join([CREATE] * 101), {}),
}


@pytest.mark.parametrize("name", HTTP)
def test_hostile_request_is_refused_without_effect(server: Running, name: str) -> None:
    status, method, path, body, headers = HTTP[name]
    got, answered, content = server.http(method, path, body, headers)
    assert got == status, content
    error = json.loads(content)["error"]
    assert error["message"] and answered["content-type"] == "application/json"
    assert TOKEN not in content.decode() and "4711" not in content.decode() and "Traceback" not in content.decode()
    assert not {"access-control-allow-origin", "server", "x-evil"} & set(answered)
    assert [info.agent_id for info in server.client().list_agents()] == ["mine"]


METHODS: dict[str, tuple[int, str, Any]] = {
    "constructor": (-32601, "__init__", {}),
    "private function": (-32601, "_lease", {}),
    "reserved prefix": (-32601, "rpc.shutdown", {}),
    "other case": (-32601, "Create_Agent", {}),
    "empty name": (-32601, "", {}),
    "tenant in the body": (-32602, "create_agent", {"tenant": "other"}),
    "session in the body": (-32602, "send", {"agent_id": "mine", "content": "x", "session": "main"}),
    "SQL as a name": (-32602, "get_messages", {"agent_id": "mine", "a') OR 1=1--": 1}),
    "path as an id": (-32000, "create_agent", {"agent_id": "../../etc/passwd"}),
    "huge request id": (-32000, "send", {"agent_id": "mine", "content": "x", "request_id": "x" * 201}),
    "huge number as request id": (-32000, "send", {"agent_id": "mine", "content": "x", "request_id": 10**30}),
    "blank message": (-32000, "send", {"agent_id": "mine", "content": " \n"}),
    "negative limit": (-32000, "get_messages", {"agent_id": "mine", "limit": -1}),
    "server stopped by one of several tenants": (-32000, "shutdown_server", {}),
    "path upward as an id": (-32000, "create_agent", {"agent_id": ".."}),
    "destroyed agent without an id": (-32602, "destroy_agent", {}),
    "line break as an id": (-32000, "create_agent", {"agent_id": "a\r\nX-Evil: 1"}),
    "NUL as an id": (-32000, "create_agent", {"agent_id": "a\0b"}),
    "own session as a fork": (-32000, "fork", {"agent_id": "mine", "new_agent_id": "mine"}),
    "fork of settings": (-32000, "fork", {"agent_id": "nexus:agent:mine", "new_agent_id": "made"}),
    "fork of a turn that does not exist": (-32000, "fork", {"agent_id": "mine", "new_agent_id": "made", "turn": 99}),
    "fork of a negative turn": (-32000, "fork", {"agent_id": "mine", "new_agent_id": "made", "turn": -1}),
    "settings as a parent": (-32000, "create_agent", {"agent_id": "made", "parent_agent_id": "nexus:agent:mine"}),
    "agent as its own parent": (-32000, "create_agent", {"agent_id": "made", "parent_agent_id": "made"}),
    "no permissions at all": (-32602, "create_agent", {"agent_id": "made", "permissions": []}),
    "principal with a line break": (-32000, "create_agent", {"agent_id": "dm:a\nb", "principal": "a\nb"}),
    "agent in the path and another one": (-32602, "send", {"agent_id": "mine", "agentId": "other", "content": "x"}),
    "tenant as an agent": (-32000, "get_messages", {"agent_id": "other/mine"}),
    "result of a tool that was not called": (
        -32000,
        "assemble",
        {"agent_id": "mine", "results": [{"call_id": "c1", "content": "x"}]},
    ),
    "reply to no call": (-32000, "record", {"agent_id": "mine", "reply": "x"}),
    "context of another agent": (
        -32000,
        "record",
        {"agent_id": "mine", "reply": "x", "context_id": "1-0123456789abcdef"},
    ),
    "path as a model": (-32000, "mirror", {"agent_id": "mine", "messages": [], "model": "../../etc/passwd"}),
    "profile as a path": (-32000, "create_agent", {"agent_id": "x", "profile": "/etc/passwd"}),
}


@pytest.mark.parametrize("name", METHODS)
def test_hostile_call_is_an_error(server: Running, name: str) -> None:
    code, method, params = METHODS[name]
    error = server.rpc(method, params)
    assert error["code"] == code, error
    wanted = {-32601: "method_not_found", -32602: "invalid_params"}
    assert error["data"]["code"] == wanted.get(code, error["data"]["code"])
    assert [info.agent_id for info in server.client().list_agents()] == ["mine"]


def test_tenants_do_not_see_each_other(server: Running) -> None:
    other = server.client(OTHER)
    assert other.list_agents() == ()
    assert not other.destroy_agent("mine")
    for call in (lambda: other.agent("mine").get_messages(), lambda: other.create_agent(parent_agent_id="mine")):
        with pytest.raises(ServerCallFailed, match="not found"):
            call()
    created = other.create_agent("mine")
    assert created.get_messages().total == 0
    assert created.send("Hi", "r1").content == server.client().agent("mine").send("Hi", "r1").content
    assert created.get_messages().total == 2
    other.destroy_agent("mine")
    assert server.http("GET", "/metrics", None, {"Authorization": "Bearer of nobody"})[0] == 401
    metrics = server.http("GET", "/metrics", None, {"Authorization": f"Bearer {OTHER}"})[2].decode()
    assert "mine" not in metrics and 'nexus_http_refusals_total{status="401"}' in metrics


def test_slow_body_is_refused_after_the_limit(server: Running) -> None:
    with socket.create_connection(urlsplit(server.url).netloc.split(":"), timeout=60) as connection:
        head = f"POST /rpc HTTP/1.1\r\nHost: {host_of(server)}\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{{".encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_body_that_comes_byte_by_byte_is_refused_after_the_limit(server: Running) -> None:
    with socket.create_connection(urlsplit(server.url).netloc.split(":"), timeout=60) as connection:
        head = f"POST /rpc HTTP/1.1\r\nHost: {host_of(server)}\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n".encode())
        connection.settimeout(0.05)
        received = b""
        for _ in range(600):
            with contextlib.suppress(TimeoutError):
                received = connection.recv(4096)
                break
            connection.sendall(b" ")
        assert received.startswith(b"HTTP/1.1 408 ")
    assert [info.agent_id for info in server.client().list_agents()] == ["mine"]


def test_100_slow_bodies_block_no_other_request(server: Running) -> None:
    address = urlsplit(server.url).netloc.split(":")
    head = f"POST /rpc HTTP/1.1\r\nHost: {host_of(server)}\r\nAuthorization: Bearer {TOKEN}\r\n"
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(100)]
        for connection in slow:
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n{{".encode())
        assert [info.agent_id for info in server.client().list_agents()] == ["mine"]
        assert {connection.recv(4096)[:13] for connection in slow} == {b"HTTP/1.1 408 "}


def test_chunked_body_without_end_is_refused_by_its_size(server: Running) -> None:
    with socket.create_connection(urlsplit(server.url).netloc.split(":"), timeout=60) as connection:
        head = f"POST /rpc HTTP/1.1\r\nHost: {host_of(server)}\r\nAuthorization: Bearer {TOKEN}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
        connection.sendall(chunk * 6)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_head_of_a_stream_holds_none(server: Running) -> None:
    for _ in range(2):  # one stream may be open
        assert server.http("HEAD", "/agent/mine/events")[::2] == (405, b"")


def test_second_stream_above_the_limit_is_refused(server: Running) -> None:
    agent = server.client().agent("mine")
    stream = agent.events()
    assert next(stream).type == "open"
    with pytest.raises(ServerCallFailed) as caught:
        next(agent.events())
    assert caught.value.status == 429
    stream.close()


def test_health_needs_no_token_and_ready_says_when(server: Running) -> None:
    assert server.http("GET", "/health", None, {"Authorization": None})[0] == 200
    while server.http("GET", "/ready", None, {"Authorization": None})[0] != 200:
        pass


def test_rate_is_limited_by_tenant(tmp_path: Path) -> None:
    tokens = {TOKEN: "local", OTHER: "other"}
    with running(tmp_path, tokens=tokens, limits=HttpLimits(per_second=0.001, burst=3)) as server:
        batch = b"[%s]" % b",".join([DISCOVER] * 2)
        assert [server.http("POST", "/rpc", batch)[0] for _ in range(2)] == [200, 429]
        status, headers, _ = server.http("POST", "/rpc", batch)
        assert status == 429 and int(headers["retry-after"]) >= 1
        assert server.http("POST", "/rpc", DISCOVER, {"Authorization": f"Bearer {OTHER}"})[0] == 200


def test_rate_limit_fills_again_with_time() -> None:
    now = [0.0]
    rate = RateLimit(2.0, 4, lambda: now[0])
    assert rate.wait_s("a", 4) == 0.0
    assert rate.wait_s("a") == 0.5
    now[0] = 0.5
    assert (rate.wait_s("a"), rate.wait_s("b", 100)) == (0.0, 0.0)


def test_secret_of_a_provider_is_in_no_answer_and_no_metric(tmp_path: Path) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    with running(tmp_path, reply("x")) as server:
        error = server.rpc("create_agent", {"agent_id": "a", "parent_agent_id": key})
        assert key not in json.dumps(error)
        assert key not in server.http("GET", "/metrics")[2].decode()


SITES = {
    ("localhost", True), ("LOCALHOST:8765", True), ("[::1]:80", True), ("127.0.0.1", True), ("nexus.example:443", True),
    ("evil.example", False), ("", False), ("[::1", False), ("localhost:8765:1", False), ("localhost#x", False),
}  # fmt: skip


@pytest.mark.parametrize(("host", "allowed"), sorted(SITES))
def test_host_is_a_name_of_the_server(host: str, allowed: bool) -> None:
    assert AllowedSites(["nexus.example"]).has_host(host) == allowed


def test_origin_is_the_same_site_or_an_allowed_one() -> None:
    sites = AllowedSites([], ["https://app.example/"])
    assert sites.has_origin("https://app.example", "localhost:1")
    assert sites.has_origin("http://localhost:1", "localhost:1")
    assert not sites.has_origin("https://app.example.evil", "localhost:1")


def test_token_file_is_private_and_made_once(tmp_path: Path) -> None:
    file = tmp_path / "new" / "server.token"
    assert make_token_file(file) and not make_token_file(file)
    assert file.stat().st_mode & 0o777 == 0o600
    token, tenant = file.read_text("utf-8").split()
    assert read_tokens(file).tenant_of(f"Bearer {token}") == tenant == "local"
    file.chmod(0o644)
    with pytest.raises(BadSetting, match="chmod 600"):
        read_tokens(file)


BAD_TOKEN_FILES = {"empty": "", "comment": "# none\n", "short": "short a\n", "three words": f"{TOKEN} a b\n", "twice": f"{TOKEN} a\n{TOKEN} b\n"}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TOKEN_FILES)
def test_invalid_token_file_is_reported_without_the_token(tmp_path: Path, name: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(BAD_TOKEN_FILES[name], "utf-8")
    file.chmod(0o600)
    with pytest.raises(BadSetting) as caught:
        read_tokens(file)
    assert TOKEN not in str(caught.value)


def test_address_of_other_machines_needs_permission() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(BadSetting, match="reachable from other machines"):
            open_socket(host, 0)
    open_socket("0.0.0.0", 0, allow_remote=True).close()


def test_discovery_describes_every_method(server: Running) -> None:
    document = json.loads(server.http("POST", "/rpc", DISCOVER)[2])["result"]
    names = {method["name"] for method in document["methods"]}
    assert {"create_agent", "send", "mirror"} <= names and "__init__" not in names
    assert msgspec.json.encode(document).count(b'"$ref"') > len(names)
