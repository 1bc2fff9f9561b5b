"""The MCP server: sessions and memory for any client of the Model Context Protocol (docs/mcp.md).

`definitions` has the tools as clients see them, `answers` what they return, `server` the protocol, `http` access over
HTTP, and `client_files` the entries in the configuration of clients.
"""
