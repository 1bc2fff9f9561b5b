"""The context of a placed list: assembled over the ledger as if the list's messages were stored already."""

from __future__ import annotations

import dataclasses
from functools import partial

from msgspec.structs import replace

from nexus.assembly.assemble import assemble
from nexus.assembly.inputs import MirroredList
from nexus.context import AssembledContext
from nexus.engine.events import event_of
from nexus.engine.mirror import CallerLists, PlacedList
from nexus.engine.mirror.unchanged import has_unchanged_list, has_unchanged_tools
from nexus.engine.preparation import Preparation
from nexus.types.request import Event, Request

MIRROR_PROFILE = "bare"


def assemble_list(
    mirror: CallerLists, preparation: Preparation, placed: PlacedList, reserve: int, request: Request
) -> AssembledContext:
    """Return the context of a placed list. `reserve`: tokens that the caller adds to the request itself."""
    client = placed.client
    event = event_of(placed.event, Event(), preparation.clock_ms())
    settings = request.settings
    system = "\n\n".join(text for text in (settings.system, client.system) if text)
    settings = replace(settings, profile=settings.profile or MIRROR_PROFILE, system=system)
    request = replace(request, event=event, session=placed.session, settings=settings)
    if reserve:
        available = preparation.available(request)
        request = replace(request, settings=replace(request.settings, budget=max(available - reserve, 1)))
    prepared = preparation.prepare(request, moment=False)
    with preparation.store.snapshot():
        authorized = preparation.authorize(prepared)
        resolved = preparation.profile(authorized.request)
        inputs = preparation.inputs(authorized, resolved, mirror.overlay(placed), placed.event)
    mirrored = placed.public(reserve)
    inputs = dataclasses.replace(
        inputs,
        mirrored=MirroredList(
            mirrored,
            mirror.pins(placed),
            client.parts_behind(len(system) - len(client.system)),
            client.names_behind(len(system) - len(client.system)),
        ),
    )
    ctx = assemble(authorized.request, resolved.profile, inputs)
    own_system = "" if preparation.settings.system else system
    mirrored = dataclasses.replace(
        mirrored,
        _has_unchanged_list=partial(has_unchanged_list, ctx, client.form, client.messages, own_system, client.system),
        _has_unchanged_tools=partial(has_unchanged_tools, ctx, authorized.request.tools),
    )
    return dataclasses.replace(ctx, provenance=dataclasses.replace(ctx.provenance, mirrored=mirrored))
