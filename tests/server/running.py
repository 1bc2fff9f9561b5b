"""A server in this process: real uvicorn on a free port, in a thread, with a model server behind it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nexus.engine import Engine, open_engine
from nexus.ledger.location import open_ledger
from nexus.models import Models, open_client
from nexus.server.app import HttpLimits
from nexus.server.client import Client
from nexus.server.http import open_socket, serve_http, url_of
from nexus.server.security import Tokens
from nexus.server.tenants import ServeOptions, Tenants
from nexus.testing.model_server import ModelServer, Step, model_server, reply

TOKEN = "token-of-the-local-tenant"
MODEL = "gpt-4o"


@dataclass
class Running:
    """A running server and the model behind it."""

    url: str
    model: ModelServer
    tenants: Tenants
    stop: Callable[[], None]

    def client(self, token: str = TOKEN) -> Client:
        return Client(self.url, token, timeout_s=120)

    def http(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request as it is; the headers replace the usual ones, and None as a value leaves one out."""
        usual = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        sent = {name: value for name, value in {**usual, **(headers or {})}.items() if value is not None}
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        try:
            connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            if body is not None and "Content-Length" not in sent:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            with connection.getresponse() as response:
                return response.status, {k.lower(): v for k, v in response.headers.items()}, response.read()
        finally:
            connection.close()

    def rpc(self, method: str, params: Any = None, path: str = "/rpc", **headers: str) -> Any:
        """Call a method and return its result, or its error."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        answer = json.loads(self.http("POST", path, json.dumps(message).encode(), headers)[2])
        return answer.get("result", answer.get("error"))


@dataclass
class Process:
    """A process of `nexus serve`."""

    process: subprocess.Popen[str]
    url: str
    token: str

    def client(self) -> Client:
        return Client(self.url, self.token, timeout_s=120)

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {token or self.token}"})
        with connection.getresponse() as response:
            answer = response.status, response.read().decode()
        connection.close()
        return answer

    def stop(self) -> tuple[int, str]:
        """End the process, and return its exit code and what it wrote to standard error."""
        self.process.terminate()
        _, errors = self.process.communicate()
        return self.process.returncode, errors


@contextmanager
def process(folder: Path, *options: str, **env: str) -> Iterator[Process]:
    """Run `nexus serve` for a workspace of the folder, on a free port and without anyone's keys."""
    (folder / "workspace").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    command = [sys.executable, "-m", "nexus", "serve", "-w", "workspace", "--port", "0", "--json", *options]
    home = {"NEXUS_HOME": str(folder / "home")}
    with subprocess.Popen(
        command, cwd=folder, env={**kept, **home, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running_process:
        try:
            assert running_process.stdout is not None and running_process.stderr is not None
            line = running_process.stdout.readline()
            assert line, running_process.stderr.read()
            printed = json.loads(line)
            token = Path(printed["token_file"]).read_text("utf-8").split()[0]
            yield Process(running_process, printed["url"], token)
        finally:
            running_process.kill()


@contextmanager
def running(
    folder: Path,
    *steps: Step,
    tokens: Mapping[str, str] | None = None,
    limits: HttpLimits | None = None,
    options: ServeOptions | None = None,
    max_open: int = 64,
    tools: Any = (),
    ledger: str = "",
    send_buffer: int = 0,
    origins: Sequence[str] = (),
) -> Iterator[Running]:
    """Run a server over the ledger of a folder, or at a URL. `send_buffer`: bytes that the system takes for a client."""
    place = ledger or str(folder / "ledger.db")
    ready, box = threading.Event(), dict[str, Any]()

    def engine(tenant: str) -> Engine:
        return open_engine(ledger=open_ledger(None, place, folder, tenant=tenant), model=MODEL)

    with model_server(*steps or (reply("Hello."),)) as model:

        async def main() -> None:
            async with Models({MODEL: open_client(base_url=model.openai_url)}) as models:
                box["loop"], box["stopping"] = asyncio.get_running_loop(), asyncio.Event()
                chosen = options or ServeOptions(grace_s=5.0)
                tenants = Tenants(engine, models, tools=tools, options=chosen, max_open=max_open)
                listener = open_socket("127.0.0.1", 0)
                if send_buffer:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
                box["url"], box["tenants"] = url_of(listener), tenants
                table = Tokens(tokens or {TOKEN: "local"})
                await serve_http(
                    tenants,
                    table,
                    listener,
                    origins=origins,
                    limits=limits,
                    started=ready.set,
                    stopping=box["stopping"],
                )

        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                box["error"] = error
                raise
            finally:
                ready.set()

        thread = threading.Thread(target=run, name="server under test")
        thread.start()
        ready.wait()

        def stop() -> None:
            if thread.is_alive():
                box["loop"].call_soon_threadsafe(box["stopping"].set)
            thread.join()

        assert "error" not in box, box
        try:
            yield Running(box["url"], model, box["tenants"], stop)
        finally:
            stop()
