"""Document 000's ContextBuilder: the five messages of a tagged dialogue from an application's data.

With a mood detector there are six if it recognizes a mood: `[MOOD]` before the last.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec
from msgspec.structs import replace

from nexus.bus import Bus, Subscription
from nexus.bus import Message as BusMessage
from nexus.engine.async_engine import AsyncEngine
from nexus.errors import BadSetting
from nexus.services.context.formatters import (
    FriendsInfoFormatter,
    MemoryFormatter,
    MomentFormatter,
    read_rows,
    read_text,
)
from nexus.services.context.mood import MoodDetector, RuleMoodDetector
from nexus.services.context.prompts import PromptManager
from nexus.services.context.stored_calls import assemble_call
from nexus.services.messages import (
    GROUP,
    BuildRequest,
    Identities,
    Run,
    StoredCall,
    answer,
    check_tenant,
    publish_if_possible,
    read_content,
)
from nexus.services.persistence import PersistenceService, check_owner
from nexus.services.tagged import HUMAN, LIMIT, DialogueRow, merge_rows, mood_block
from nexus.services.topics import Topics
from nexus.types.block import ContextWarning
from nexus.types.request import TOOLS_ORIGIN
from nexus.types.sanitize import sanitize_text
from nexus.types.tool_definition import (
    ToolSource,
    check_definitions,
    definition_name,
    single_definitions,
    tool_definitions,
    usable_definitions,
)
from nexus.types.user_profile import FIELDS, friend_text, user_profile_text
from nexus.workspace.sources.session_blocks import USER_PROFILE_SOURCE

FIRST_ROWS = 200
MOST_ROWS = 25_600
"""Rows of a history in the first request and in the largest: doubled until there are enough entries."""

MOOD_SOURCE = "nexus:mood"
MOOD_CHARS = 1_000
"""Limit of a mood, which is a word or a few."""


class HistoryService(Protocol):
    """The part of document 000's PersistenceService that the builder needs."""

    def get_history(self, owner_key: str, limit: int) -> Awaitable[list[dict[str, Any]]] | list[dict[str, Any]]:
        """Return at most `limit` rows of a user, newest first; asynchronous or not."""
        ...


class ConfigurationService(Protocol):
    """The part of document 000's ConfigService that the builder needs. A dict is enough."""

    def get(self, name: str, /) -> Any:
        """Return the value of a name; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The five messages (six with a mood), the tools' definitions for the model's API, and warnings."""

    messages: list[dict[str, str]]
    tools: list[dict[str, Any]]
    warnings: tuple[ContextWarning, ...]
    omitted: Mapping[str, int]
    """Number of omitted rows of the history by role or reason."""


class ContextBuilder:
    """Builder of contexts of five messages, on the bus after `start`. `warnings` are those of the last context.

    Args:
        bus: Where requests come from and responses go.
        tool_registry: A `nexus.tools.ToolRegistry`, or anything with its `get_all_tool_definitions()`.
        config_service: Defaults for users without a profile.
        persistence_service: Histories of the users.
        limit: Limit of the memory's entries.
        clock_ms: Returns Unix time in milliseconds.
        mood_detector: Recognizes moods for the block [MOOD]. Without one, `mood.enabled` in the configuration decides
            whether `RuleMoodDetector` does.
        nx: Engine with the ledger. Without a `persistence_service`, the histories are its sessions, and the memory of a
            request that names a stored call has the ledger's pins, summary and budget.
    """

    def __init__(
        self,
        bus: Bus | None = None,
        tool_registry: ToolSource | None = None,
        config_service: ConfigurationService | None = None,
        persistence_service: HistoryService | None = None,
        *,
        limit: int = LIMIT,
        clock_ms: Callable[[], int] | None = None,
        mood_detector: MoodDetector | None = None,
        nx: AsyncEngine | None = None,
    ) -> None:
        self.bus = bus
        self.tool_registry = tool_registry
        self.nx = nx
        self.mood_detector = mood_detector
        self.config_service = config_service
        self.persistence_service = persistence_service
        self.limit = limit
        self.clock_ms = clock_ms or (lambda: time.time_ns() // 1_000_000)
        self.prompts = PromptManager()
        self.warnings: tuple[ContextWarning, ...] = ()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Subscribe to `Topics.CONTEXT_BUILD_REQUEST`. Builders of several processes share the requests."""
        if self.bus is None:
            raise BadSetting("context builder has no bus (pass bus=nexus.bus.open_bus(…))")
        self._subscription = await self.bus.subscribe(Topics.CONTEXT_BUILD_REQUEST, self._respond, group=GROUP)

    async def stop(self) -> None:
        """Unsubscribe, and finish the requests that had arrived."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()

    async def handle_build_request(self, message: BusMessage) -> None:
        """Build the context that a message asks for, and publish `Topics.CONTEXT_BUILD_RESPONSE`.

        The response has `messages`, `tools` and `warnings`, or is an error envelope with `kind` and `text`.
        """
        await self._respond(message)

    async def _respond(self, message: BusMessage) -> BusMessage:
        response = replace(await answer(message, self._response), topic=Topics.CONTEXT_BUILD_RESPONSE)
        if self.bus is not None:
            await publish_if_possible(self.bus, response)
        return response

    async def _response(self, message: BusMessage) -> dict[str, Any]:
        request = read_content(message, BuildRequest)
        if self.nx is not None:
            check_tenant(message, self.nx.engine.ledger.store.tenant)
        run = request.run
        metadata = request.metadata
        offset = metadata.client_timezone_offset
        profile = run.user_profile
        if hasattr(self.config_service, "get_identity"):  # it reads the configuration too
            identity = await cast("Identities", self.config_service).get_identity(run.owner_key)
            profile = profile or identity
        is_stored = request.call is not None and self._reads_ledger()
        if is_stored and request.call is not None:
            dialogue = await self._build_turn(run, profile, request.call, request.tools)
        else:
            dialogue = await self.build(
                run.owner_key,
                profile,
                run.current_input,
                metadata.client_timestamp_utc,
                int(offset) if isinstance(offset, float) else offset,
                run.id,
                tools=request.tools,
            )
        return {
            "messages": dialogue.messages,
            "tools": dialogue.tools,
            "warnings": msgspec.to_builtins(dialogue.warnings),
            "omitted": dict(dialogue.omitted),
            **({"memory": "ledger"} if is_stored else {}),
        }

    async def build_context(
        self,
        owner_key: str,
        user_profile: Mapping[str, Any],
        current_input: str,
        timestamp_utc: str = "",
        timezone_offset: int | str = 0,
        current_run_id: str = "",
    ) -> list[dict[str, str]]:
        """Return the five messages: identity, tools, memory, friend, current message.

        `timestamp_utc` is an ISO 8601 text (the clock's time if empty). `timezone_offset` is in minutes as in a browser's
        `getTimezoneOffset` (-480 is +08:00), also as text, or an IANA name. Rows of the run `current_run_id` are omitted;
        without it, a newest row with the text of the current input is, and its run. With a mood there is a sixth message
        before the last. Raises BadTool and errors of the services.
        """
        built = await self.build(owner_key, user_profile, current_input, timestamp_utc, timezone_offset, current_run_id)
        self.warnings = built.warnings
        return built.messages

    async def build(
        self,
        owner_key: str,
        user_profile: Mapping[str, Any],
        current_input: str,
        timestamp_utc: str = "",
        timezone_offset: int | str = 0,
        current_run_id: str = "",
        *,
        tools: Sequence[dict[str, Any]] = (),
    ) -> Dialogue:
        """The same with the tools' definitions and a report. `tools` are offered besides those of the registry."""
        tools, warned = self._tools(tools)
        omitted: dict[str, int] = {}
        rows = await self._rows(owner_key, current_run_id)
        if not current_run_id and (repeated := _repeated_input(rows, current_input)) is not None:
            current_run_id = repeated.run_id
            if not current_run_id:
                rows, omitted["of the current run"] = rows[1:], 1
        memory = MemoryFormatter.format_shared_memory(
            rows,
            self.limit,
            timezone_offset=timezone_offset,
            current_run_id=current_run_id,
            warned=warned,
            left_out=omitted,
        )
        moment = MomentFormatter.format_this_moment(
            current_input, timestamp_utc, timezone_offset, now_ms=self.clock_ms(), warned=warned
        )
        friend = FriendsInfoFormatter.format_friends_info(self._profile(user_profile, warned))
        blocks = [self.prompts.get_capabilities_prompt(tools), memory, friend, moment]
        if mood := await self._mood(current_input, rows, warned):
            blocks.insert(-1, sanitize_text(mood_block(mood)))
        messages = [{"role": "system", "content": self.prompts.get_core_identity()}]
        messages += [{"role": "user", "content": block} for block in blocks]
        return Dialogue(messages, list(tools), tuple(dict.fromkeys(warned)), omitted)

    async def _build_turn(
        self, run: Run, user_profile: object, call: StoredCall, tools: Sequence[dict[str, Any]]
    ) -> Dialogue:
        """Build the context of a stored call: its memory, with pins and summary, is the ledger's."""
        assert self.nx is not None
        await self.nx.run(check_owner, self.nx.engine, run.owner_key, call.session)
        warned: list[ContextWarning] = []
        profile = {FIELDS[0]: friend_text(self._profile(user_profile, warned))}
        rows = await self._rows(run.owner_key, run.id) if self._detector() is not None else []
        mood = await self._mood(run.current_input, rows, warned)
        definitions, unusable = self._tools(tools)
        warned += unusable
        options = {
            **call.options,
            "tools": definitions,
            "user_profile": profile,
            "blocks": {**call.options.get("blocks", {}), **({"mood": mood} if mood else {})},
        }
        ctx = await assemble_call(self.nx, replace(call, options=options))
        return Dialogue(ctx.to_openai()["messages"], definitions, (*warned, *ctx.warnings), {})

    def _reads_ledger(self) -> bool:
        """Return true if the histories are the engine's own, so that it can assemble stored calls."""
        history = self.persistence_service
        return self.nx is not None and (
            history is None or (isinstance(history, PersistenceService) and history.nx is self.nx)
        )

    def _tools(self, tools: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[ContextWarning]]:
        """Return definitions with the registry's, which replace others of the same name, and a warning for each omitted one."""
        registry = self.tool_registry
        registered: tuple[dict[str, Any], ...] = ()
        if registry is not None and tools:
            registered = tool_definitions(registry)
        elif registry is not None:
            registered = check_definitions(registry.get_all_tool_definitions(), registry)
        names = {definition_name(tool) for tool in single_definitions(registered)}
        others = tools
        if names:
            others = (tool for tool in single_definitions(tools) if definition_name(tool) not in names)
        usable, problems = usable_definitions((*registered, *others))
        return list(usable), [ContextWarning(TOOLS_ORIGIN, text) for text in problems]

    async def _rows(self, owner_key: str, current_run_id: str) -> list[dict[str, Any]]:
        """Return the newest rows: all of them, or enough for more entries than are shown."""
        count = FIRST_ROWS
        service = self.persistence_service
        if service is None and self.nx is not None:
            service = PersistenceService(self.nx)
        while service is not None:
            history = service.get_history(owner_key, limit=count)
            if inspect.isawaitable(history):
                rows = await history
            else:
                rows = history
            if not isinstance(rows, list) or len(rows) < count or count >= MOST_ROWS:
                return rows
            if len(merge_rows(read_rows(rows, [])[::-1], current_run_id)[0]) > self.limit:
                return rows
            count *= 2
        return []

    def _profile(self, user_profile: object, warned: list[ContextWarning]) -> Mapping[str, Any]:
        """Return the user's profile, or the configured default profile if it has no text."""
        text, invalid_field = user_profile_text(user_profile)
        if invalid_field:
            problem = f"omitted: {invalid_field} is not text and has no text as its content"
            warned.append(ContextWarning(USER_PROFILE_SOURCE, problem))
        profile = user_profile
        if not text:  # document 000, "config.example.yml"
            profile = self._configured("user_defaults", "prompts")
        return cast("Mapping[str, Any]", profile)

    def _detector(self) -> MoodDetector | None:
        if self.mood_detector is not None:
            return self.mood_detector
        if self._configured("mood", "enabled") is True:
            return RuleMoodDetector()
        return None

    async def _mood(self, current_input: object, rows: object, warned: list[ContextWarning]) -> str:
        """Return the mood of the input; "" without a detector. A detector that fails is a warning."""
        detector = self._detector()
        if detector is None:
            return ""
        try:
            mood = detector(read_text(current_input, Counter()), cast("list[Any]", rows))
            mood = await mood if inspect.isawaitable(mood) else mood
            name = "" if mood is None else sanitize_text(mood.name).strip()
        except Exception as error:  # noqa: BLE001 - a detector of the application must not prevent the context
            warned.append(ContextWarning(MOOD_SOURCE, f"omitted: the detector failed ({type(error).__name__})"))
            return ""
        if len(name) > MOOD_CHARS:
            warned.append(ContextWarning(MOOD_SOURCE, f"omitted: {len(name):,} characters (limit: {MOOD_CHARS})"))
            return ""
        return name

    def _configured(self, first: str, second: str) -> Any:
        """Return a value of the configuration, by its dotted name or nested in a dict; None if there is none."""
        config: ConfigurationService = self.config_service if self.config_service is not None else {}
        value = config.get(f"{first}.{second}")
        if value is None and isinstance(nested := config.get(first), Mapping):
            value = cast("Mapping[str, Any]", nested).get(second)
        return value


def _repeated_input(rows: object, current_input: object) -> DialogueRow | None:
    """Return the newest row if it is the current input, which the application stored before the context was built."""
    newest = read_rows(cast("list[object]", rows)[:1], []) if isinstance(rows, list) else []
    if not newest or newest[0].role.strip().casefold() not in HUMAN or not newest[0].text:
        return None
    if newest[0].text == read_text(current_input, Counter()):
        return newest[0]
    return None
