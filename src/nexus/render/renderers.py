"""Table of the renderers of an assembled context, which assembly injects into it."""

from __future__ import annotations

from nexus.context import Renderers
from nexus.providers import anthropic, gemini, openai, openai_responses
from nexus.providers.body_hash import body_hash
from nexus.render.context_json import to_json
from nexus.render.report import report

RENDERERS = Renderers(
    openai=openai.body,
    anthropic=anthropic.body,
    gemini=gemini.body,
    responses=openai_responses.body,
    report=report,
    as_json=to_json,
    body_hash=body_hash,
)
