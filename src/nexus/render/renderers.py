"""How an assembled context is shown, as one table that assembly puts into it."""

from __future__ import annotations

from nexus.context import Renderers
from nexus.providers import anthropic, gemini, openai
from nexus.providers import body_hash as proof
from nexus.providers import openai_responses as responses
from nexus.render.context_json import to_json
from nexus.render.report import report

RENDERERS = Renderers(
    openai=openai.body,
    anthropic=anthropic.body,
    gemini=gemini.body,
    responses=responses.body,
    report=report,
    as_json=to_json,
    body_hash=proof.body_hash,
)
