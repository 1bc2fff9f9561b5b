"""Document 000's CORE_IDENTITY, the system message of the tagged dialogue."""

from __future__ import annotations

from nexus.workspace.prompts import prompt_text

# The same bytes for every user and call, so that providers cache it: no name, no time, no counts.
CORE_IDENTITY = prompt_text("core_identity.md")
