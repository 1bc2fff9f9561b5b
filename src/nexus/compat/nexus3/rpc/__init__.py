"""Document 004's agents: a pool of them, the session of each, and a dispatcher for requests. They run `nexus.agents`."""
