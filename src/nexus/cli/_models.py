"""Clients and summarizers of the models that a command line names, with the user's keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.engine import Engine
from nexus.errors import BadSetting, NoCredential
from nexus.models import EndpointClient, open_client
from nexus.workspace.credentials.store import Credentials

if TYPE_CHECKING:
    from nexus.summarization.model_summarizer import ModelSummarizer

EXTRACTIVE = "extractive"
"""Name of the summarizer that uses no model."""


class NoKey(NoCredential):
    """The model's provider needs a key, and none is set."""


def open_model(
    model: str,
    credentials: Credentials,
    base_url: str = "",
    api_key: str = "",
    *,
    advice: str = "name a server that needs none: --base-url",
) -> EndpointClient:
    """Return the client of a model's provider, or of a server.

    Args:
        model: Name of the model.
        credentials: The user's keys.
        base_url: Address of a server in place of the provider.
        api_key: Key of that server.
        advice: Text of an error about a missing key: an alternative for the user of the command.

    Raises NoKey, BadSetting, PackageMissing.
    """
    try:
        return open_client(
            "" if base_url else model, base_url=base_url, api_key=api_key, credentials=credentials.for_variable
        )
    except NoCredential as error:
        raise NoKey(f"no key for {model}: set {error.variable}, or {advice}", variable=error.variable) from error
    except BadSetting as error:
        if base_url:
            raise
        raise BadSetting(
            f"model {model!r} has no known server: name it with --base-url, or use another model"
        ) from error


def summarizer_of(nx: Engine, model: str, base_url: str = "", api_key: str = "") -> ModelSummarizer | None:
    """Return the summarizer of a model; None for `EXTRACTIVE`."""
    from nexus.summarization.model_summarizer import ModelSummarizer

    if model == EXTRACTIVE:
        return None
    return ModelSummarizer(
        model, base_url=base_url, api_key=api_key, credentials=nx.credentials.for_variable, models=nx.models
    )
