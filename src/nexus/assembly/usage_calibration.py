"""What a recorded reply teaches about counting: its report against the count of the context that was sent. Pure."""

from __future__ import annotations

from nexus.context import AssembledContext
from nexus.tokens.calibration import Learned, cold, learn
from nexus.tokens.model import Model
from nexus.tokens.model_names import bare_name, same_model
from nexus.types.ledger_entries import Calibration
from nexus.types.message import Image, Message, ToolResult
from nexus.types.request import AgentResult

_BASE_COUNTER = "o200k_base"
_BY = " by "


def calibrated_name(model: str, counter: str) -> str:
    """The model's name in a calibration: its bare name, with the counter where that is not o200k's."""
    bare = bare_name(model)
    return bare if counter == _BASE_COUNTER else f"{bare}{_BY}{counter}"


def named_in(calibrated: str) -> str:
    """The model that a calibration is about, by the name that it is stored under."""
    return calibrated.split(_BY, 1)[0]


def factor_of(model: Model, calibration: Calibration | None) -> float:
    """The model's tokens per base token: as learned, else, or where that is the same 64th, the model's own factor."""
    own = model.token_factor
    moved = calibration is not None and calibration.factor_64 != cold(own).factor_64
    return _learned(calibration).factor if calibration and moved else own


def reported_tokens(ctx: AssembledContext, result: AgentResult) -> int:
    """The input tokens that the provider reported for the context; 0 where the report is of something else.

    An agent that called the model several times reports the sum of its calls, which is no prompt's size. Where another
    model answered than the one that the context was made for, it counted by its own vocabulary; a name that nobody
    knows, as a deployment's, may stand for any model.
    """
    if len(result.messages) != 1 or result.messages[0].role != "assistant":
        return 0
    answered = result.model or result.messages[0].model
    own = not answered or not ctx.window.known
    own = own or any(same_model(answered, name) for name in (ctx.model, ctx.window.matched))
    tokens = result.usage.input_tokens
    # An AgentResult is made by callers, and a fraction would not come back from the ledger as it was hashed.
    return tokens if own and isinstance(tokens, int) else 0


def calibrated(
    ctx: AssembledContext, result: AgentResult, earlier: Calibration | None, now_ms: int
) -> Calibration | None:
    """The calibration after this reply; None if it teaches nothing new.

    That is also so where the prompt has images: what they cost is the largest of three providers' formulas.
    """
    before = _learned(earlier) if earlier else cold(ctx.window.token_factor)
    after = learn(before, ctx.manifest.base, reported_tokens(ctx, result))
    if after == before or any(map(_has_image, ctx.messages)):
        return None
    return Calibration(after.factor_64, after.samples, now_ms)


def _learned(calibration: Calibration) -> Learned:
    return Learned(calibration.factor_64, calibration.samples)


def _has_image(message: Message) -> bool:
    return any(
        isinstance(part, Image)
        or (isinstance(part, ToolResult) and any(isinstance(block, Image) for block in part.content))
        for part in message.parts
    )
