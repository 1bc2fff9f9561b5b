"""Messages between chat channels and the agent loop."""
