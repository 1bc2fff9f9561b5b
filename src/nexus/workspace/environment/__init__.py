"""What works on this machine: probes, the survey and its snapshot, MCP server entries."""
