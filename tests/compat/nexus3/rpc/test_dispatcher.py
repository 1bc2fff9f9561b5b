"""The dispatcher of one agent of document 004: its methods, their results, and JSON-RPC errors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from compat.nexus3.rpc.pools import components, requests, run, script
from nexus.compat.nexus3.context import ContextManager
from nexus.compat.nexus3.rpc.dispatcher import Dispatcher
from nexus.compat.nexus3.rpc.pool import AgentPool
from nexus.errors import AgentError, BadSetting
from nexus.testing.model_server import fail, hang, reply
from support.errors import has_code


@pytest.fixture(autouse=True)
def _prompt(tmp_path: Path) -> None:
    (tmp_path / "NEXUS.md").write_text("Be brief.")


def request(method: Any, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def test_methods_return_the_documented_results(tmp_path: Path) -> None:
    """Document 004, "Key points" 5, and the breakdown of "Token Tracking"."""

    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        dispatcher = agent.dispatcher
        assert await dispatcher.send("Hello!", "r1") == {"content": "Hi.", "request_id": "r1"}
        assert set(await dispatcher.send("Hello!")) == {"content", "request_id"}
        tokens = await dispatcher.get_tokens()
        assert list(tokens) == ["system", "tools", "messages", "total", "budget", "available"]
        assert tokens == agent.context.get_token_usage()
        assert (tokens["budget"], tokens["available"]) == (8000, 6000)
        assert await dispatcher.get_context() == {"message_count": 5, "system_prompt": True}
        assert await dispatcher.shutdown() == {"success": True}
        assert dispatcher.should_shutdown
        with pytest.raises(AgentError, check=has_code("agent_closed")):
            await dispatcher.send("Hello?")

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)


def test_compact_reports_the_tokens_it_saved(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        dispatcher = (await pool.create("a")).dispatcher
        nothing = await dispatcher.compact()
        assert (nothing["compacted"], set(nothing)) == (False, {"compacted", "reason"})
        for number in range(6):
            await dispatcher.send(f"{number}. " + "The index is a GIN index. " * 20)
        before = (await dispatcher.get_tokens())["total"]
        result = await dispatcher.compact()
        after = (await dispatcher.get_tokens())["total"]
        saved = {"tokens_before": before, "tokens_after": after, "tokens_saved": before - after}
        assert result == {"compacted": True, **saved}
        assert after < before

    with script(reply("Hi.")) as server:
        run(components(server, tmp_path), work)


def test_cancel_ends_a_running_request_and_reports_an_unknown_one(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        dispatcher = (await pool.create("a")).dispatcher
        unknown = {"cancelled": False, "request_id": "r1", "reason": "not found or completed"}
        assert await dispatcher.cancel("r1") == unknown
        running = asyncio.ensure_future(dispatcher.send("Hello!", "r1"))
        await requests(server, 1)
        with pytest.raises(BadSetting, match="'r1' is under way"):
            await dispatcher.send("Hello!", "r1")
        for unusable in ("", " ", "r" * 201, 2**63):
            with pytest.raises(BadSetting, match="request_id "):
                await dispatcher.send("Hello!", unusable)
        assert await dispatcher.cancel("r1") == {"cancelled": True, "request_id": "r1"}
        assert await running == {"cancelled": True, "request_id": "r1"}
        assert await dispatcher.cancel("r1") == unknown
        server.script(reply("Hi."))
        assert (await dispatcher.send("Again!", "r1"))["content"] == "Hi."

    with script(hang()) as server:
        run(components(server, tmp_path), work)


def test_tokens_and_context_are_current_while_a_request_runs(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        dispatcher = (await pool.create("a")).dispatcher
        running = asyncio.ensure_future(dispatcher.send("Hello!", "r1"))
        await requests(server, 1)
        assert (await dispatcher.get_context())["message_count"] == 2
        await dispatcher.cancel("r1")
        await running

    with script(hang()) as server:
        run(components(server, tmp_path), work)


def test_dispatch_answers_json_rpc_requests(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        dispatch = (await pool.create("a")).dispatcher.dispatch
        sent = await dispatch(request("send", content="Hello!", request_id=1))
        assert sent == {"jsonrpc": "2.0", "id": 7, "result": {"content": "Hi.", "request_id": 1}}
        assert await dispatch({"jsonrpc": "2.0", "method": "get_tokens"}) is None
        for bad, code in (
            (request("nothing"), -32601),
            (request("__init__"), -32601),
            (request("dispatch"), -32601),
            (request("send"), -32602),
            (request("send", text="Hello!"), -32602),
            (request("send", content=7), -32602),
            (request("cancel", request_id=[1]), -32602),
            (request("cancel"), -32602),
            (request("get_tokens", content="Hello!"), -32602),
            ({**request("send"), "params": ["Hello!"]}, -32602),
            (request(None), -32600),
            ({"id": 7}, -32600),
            ([], -32600),
        ):
            answer = await dispatch(bad)
            assert answer is not None
            assert answer["error"]["code"] == code, (bad, answer)
        failed = await dispatch(request("send", content="Hello!"))
        assert failed is not None
        assert (failed["id"], failed["error"]["code"]) == (7, -32000)
        assert failed["error"]["data"] == {"code": "model_call_failed"}

    with script(reply("Hi."), fail(401, "wrong key")) as server:
        run(components(server, tmp_path), work)


def test_dispatcher_rejects_the_context_of_another_session(tmp_path: Path) -> None:
    async def work(pool: AgentPool) -> None:
        agent = await pool.create("a")
        with pytest.raises(BadSetting, match="another one"):
            Dispatcher(agent.session, context=ContextManager())

    with script() as server:
        run(components(server, tmp_path), work)
