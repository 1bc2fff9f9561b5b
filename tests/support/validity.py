"""The judges of request bodies: each returns a list of problems, empty if its provider would take the body.

They import nothing of Nexus: what they know comes from the providers' official packages and documented rules, so a test
that asks them cannot be fooled by an error that renderer and test share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from support.anthropic_body import check_anthropic
from support.gemini_body import check_gemini
from support.openai_body import check_openai
from support.recount import Recounter, recount, wire_text
from support.responses_body import check_responses
from support.strict import Json

CHECKS: Mapping[str, Callable[[Json], list[str]]] = MappingProxyType(
    {"openai": check_openai, "responses": check_responses, "anthropic": check_anthropic, "gemini": check_gemini}
)
"""The judge of each form, by its name: the provider's, and `responses` for the second one of OpenAI."""

__all__ = [
    "CHECKS",
    "Json",
    "Recounter",
    "check_anthropic",
    "check_gemini",
    "check_openai",
    "check_responses",
    "recount",
    "wire_text",
]
