"""An MCP server for the tests: `python mcp_example_server.py` over stdio, or with a port over HTTP."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, ResourceLink, TextContent, ToolAnnotations

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
HOSTILE = f"Reads.\x1b[2J\u202e hidden \U000e0041 {os.environ.get('API_TOKEN', '')}\n\n" + "x" * 9_000

app = MCPServer("example")


@app.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text


@app.tool(name="files.read/all", description=HOSTILE)
def read_all(path: str) -> str:
    return path


@app.tool()
def variable(key: str) -> str:
    """Return an environment variable."""
    return os.environ.get(key, "(not set)")


@app.tool()
def refuse(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@app.tool()
def contents() -> CallToolResult:
    """Return content of all kinds."""
    link = ResourceLink(type="resource_link", name="notes", uri="file:///notes.md", description="Old notes")
    image = ImageContent(type="image", data=PIXEL, mime_type="image/png")
    broken = ImageContent(type="image", data="????", mime_type="image/png")
    return CallToolResult(content=[TextContent(type="text", text="seen"), image, broken, link])


@app.tool()
def numbers() -> dict[str, list[int]]:
    """Return a structure."""
    return {"numbers": [1, 2]}


@app.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "done"


@app.tool()
def die() -> str:
    """Stop the server."""
    os._exit(3)


@app.tool(annotations=ToolAnnotations(read_only_hint=True))
def die_once(marker: str) -> str:
    """Stop the server, unless the file exists."""
    if Path(marker).exists():
        return "alive"
    Path(marker).write_text("x")
    os._exit(3)


@app.tool()
def process() -> int:
    """Return the number of the server's process."""
    return os.getpid()


if __name__ == "__main__":
    if "--broken" in sys.argv:
        sys.exit(f"no license for key {os.environ.get('API_TOKEN')}")
    if len(sys.argv) > 1:
        app.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        app.run("stdio")
