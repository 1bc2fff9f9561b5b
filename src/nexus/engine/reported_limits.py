"""Limits of models as their providers reported them: smaller windows, and calls that were too large."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec.structs import replace

from nexus.tokens.model_names import base_model_name
from nexus.types.block import ContextWarning
from nexus.types.request import Request

_are_ignored: ContextVar[bool] = ContextVar("_are_ignored", default=False)


class LearnedLimits:
    """Limits of models that providers reported when they rejected a call. They hold until the engine is closed.

    Attributes:
        recoveries: Calls that a provider rejected as too large, by model (`nexus.engine.overflow_recovery`).
    """

    def __init__(self) -> None:
        self.recoveries: Counter[str] = Counter()
        self._limits: dict[str, int] = {}

    def learn(self, model: str, tokens: int) -> None:
        """Limit all later contexts of a model, as its provider's rejection reported."""
        name = base_model_name(model)
        self._limits[name] = min(self._limits.get(name, tokens), tokens)

    def forget(self, model: str) -> bool:
        """Drop the learned limit of a model; return whether there was one."""
        return self._limits.pop(base_model_name(model), None) is not None

    @contextmanager
    def ignore(self) -> Generator[None]:
        """Assemble without learned limits in this `with`, on this thread."""
        token = _are_ignored.set(True)
        try:
            yield
        finally:
            _are_ignored.reset(token)

    def limited(self, request: Request) -> Request:
        """Return a request, which names its model, with the model's learned limit."""
        limit = 0
        if not _are_ignored.get():
            limit = self._limits.get(base_model_name(request.settings.model), 0)
        if limit != request.most_tokens:
            return replace(request, most_tokens=limit)
        return request

    def warnings(self, model: str) -> tuple[ContextWarning, ...]:
        """Return a warning if calls were rejected as too large: repeatedly, our count or the limit is wrong."""
        count = self.recoveries[model]
        if not count:
            return ()
        calls = "1 call" if count == 1 else f"{count} calls"
        return (
            ContextWarning("nexus:model", f"{calls} rejected as too large by {model} since this engine was opened"),
        )
