"""Environment of an agent: machine facts, probes, surveys, MCP server entries."""
