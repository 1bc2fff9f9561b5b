"""How an assembled context is shown, as one table that assembly puts into it."""

from __future__ import annotations

from nexus.assembled import Face
from nexus.render.context_json import to_json
from nexus.render.report import report
from nexus.render.wire import anthropic, gemini, openai, proof, responses

FACE = Face(
    openai=openai.body,
    anthropic=anthropic.body,
    gemini=gemini.body,
    responses=responses.body,
    report=report,
    as_json=to_json,
    body_hash=proof.body_hash,
)
