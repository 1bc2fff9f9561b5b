"""An MCP server over a workspace's sessions, to search and read them, and to see what a model would be sent.

python mcp_adapter.py FOLDER
"""

import sys
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

import nexus


def server(engine: nexus.Engine) -> MCPServer:
    app = MCPServer("nexus", instructions="Earlier conversations. Search them before you ask the user again.")
    nx = nexus.AsyncEngine(engine)

    async def run(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return await nx.run(function, *arguments, **options)
        except nexus.NexusError as error:
            raise ToolError(str(error)) from error

    @app.tool()
    async def search_history(query: str, session: str = "", limit: int = 5) -> list[dict[str, Any]]:
        """Find messages by their words, in one session or all, also those that no prompt shows any more."""
        hits = await run(engine.ledger.search, query, session=session, limit=limit)
        return [{"sessions": h.sessions, "turn": h.turn, "role": h.role, "text": h.text[:300]} for h in hits]

    @app.tool()
    async def list_sessions() -> list[dict[str, Any]]:
        """Return the sessions, newest first."""
        return [{"session": s.label, "title": s.title, "turns": s.turns} for s in await run(engine.sessions)]

    @app.tool()
    async def read_session(session: str, first: int = 0, count: int = 20) -> list[dict[str, Any]]:
        """Return messages of a session in order, whole."""
        return nexus.write_messages((await run(engine.history, session))[first : first + count], "openai")

    @app.tool()
    async def next_request(message: str, session: str = "main", budget: int = 8_000) -> dict[str, Any]:
        """Return the request that a model would get for a message: system prompt and what fits of the session."""
        return (await run(engine.assemble, message, session=session, budget=budget)).to_openai()

    @app.tool()
    async def store_turn(message: str, reply: str, session: str = "main") -> int:
        """Store a user's message and the reply to it, and return the number of their turn."""
        ctx = await run(engine.assemble, message, session=session)
        return (await run(engine.record, ctx, nexus.AgentResult((nexus.assistant(reply),)))).turn

    return app


if __name__ == "__main__":
    with nexus.open(sys.argv[1]) as opened:
        server(opened).run("stdio")
