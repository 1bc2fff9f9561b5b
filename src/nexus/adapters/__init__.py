"""Nexus inside agent frameworks: one module for each, on public names alone.

`langchain`, `pydantic_ai`, `openai_agents` and `agent_framework` each need the extra of that name (`pip install
nexus-context-engine[langchain]`, for example), and are imported by their full names. `client` is for a client object of
the packages `openai` and `anthropic`, without a framework: it is `nexus.fitted`.
"""
