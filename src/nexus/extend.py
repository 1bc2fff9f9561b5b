"""Building blocks of extensions: protocols and tables of formats, sources, readers, stores and buses.

Plugins, other message formats, readers of other tools' files, summarizers, ledgers in other databases and other buses use
these names, and programs that take single steps of the engine (`recover`, `link_principal`). A program that only assembles
contexts needs `nexus`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nexus.types.registry import lazy_names

if TYPE_CHECKING:
    from nexus.assembly.formats.path_format import LedgerView, PathFormat
    from nexus.assembly.formats.protocol import FilledWindow, MessageFormat, View
    from nexus.assembly.formats.roles import RolesFormat
    from nexus.assembly.profiles.builtin import LAYERED
    from nexus.bus.port import Bus
    from nexus.engine.analysis.replay import ReplayOverrides
    from nexus.engine.overflow_recovery import recover
    from nexus.interop.detect import detect as detect_format
    from nexus.interop.detect import read as read_transcripts
    from nexus.interop.importing import ImportReport, import_transcript
    from nexus.interop.readers import FileReader, add_readers
    from nexus.interop.transcript import FileReport, Problem, Step, Transcript, TranscriptPiece
    from nexus.ledger.postgres import PostgresLedger
    from nexus.ledger.sessions import NewQueuedEvent
    from nexus.ledger.sqlite import SqliteLedger
    from nexus.ledger.store import DocumentStore, HistoryStore, LedgerStore, QueueStore, SessionStore
    from nexus.models.client import ModelClient
    from nexus.policy.link import PrincipalLink, link_principal
    from nexus.summarization.model_summarizer import ModelSummarizer
    from nexus.summarization.summarizer import Summarizer, SummaryReply, SummaryRequest
    from nexus.text.frames import escape as escape_frames
    from nexus.text.frames import scan as scan_frames
    from nexus.text.frames import unescape as unescape_frames
    from nexus.text.one_line import escape_line_breaks, unescape_line_breaks
    from nexus.tokens.counter import TokenCounter
    from nexus.workspace.attachments import attachment_from_file, images_of, media_parts
    from nexus.workspace.credentials.secret import Secret
    from nexus.workspace.memory.consolidation import accept as accept_facts
    from nexus.workspace.memory.consolidation import propose as propose_facts
    from nexus.workspace.memory.consolidation import reject as reject_facts
    from nexus.workspace.plugins.spec import hookimpl
    from nexus.workspace.source_context import EngineWorkspace, SourceContext
    from nexus.workspace.sources.registry import SourceSpec
    from nexus.workspace.sources.skills import discover_skills

__all__ = [
    "LAYERED",
    "Bus",
    "DocumentStore",
    "EngineWorkspace",
    "FileReader",
    "FileReport",
    "FilledWindow",
    "HistoryStore",
    "ImportReport",
    "LedgerStore",
    "LedgerView",
    "MessageFormat",
    "ModelClient",
    "ModelSummarizer",
    "NewQueuedEvent",
    "PathFormat",
    "PostgresLedger",
    "PrincipalLink",
    "Problem",
    "QueueStore",
    "ReplayOverrides",
    "RolesFormat",
    "Secret",
    "SessionStore",
    "SourceContext",
    "SourceSpec",
    "SqliteLedger",
    "Step",
    "Summarizer",
    "SummaryReply",
    "SummaryRequest",
    "TokenCounter",
    "Transcript",
    "TranscriptPiece",
    "View",
    "accept_facts",
    "add_readers",
    "attachment_from_file",
    "detect_format",
    "discover_skills",
    "escape_frames",
    "escape_line_breaks",
    "hookimpl",
    "images_of",
    "import_transcript",
    "link_principal",
    "media_parts",
    "propose_facts",
    "read_transcripts",
    "recover",
    "reject_facts",
    "scan_frames",
    "unescape_frames",
    "unescape_line_breaks",
]

if not TYPE_CHECKING:  # type checkers then report names that do not exist
    __getattr__ = lazy_names(
        __name__,
        {
            "nexus.assembly.formats.path_format": "LedgerView PathFormat",
            "nexus.assembly.formats.protocol": "FilledWindow MessageFormat View",
            "nexus.assembly.formats.roles": "RolesFormat",
            "nexus.assembly.profiles.builtin": "LAYERED",
            "nexus.bus.port": "Bus",
            "nexus.summarization.model_summarizer": "ModelSummarizer",
            "nexus.summarization.summarizer": "Summarizer SummaryReply SummaryRequest",
            "nexus.engine.analysis.replay": "ReplayOverrides",
            "nexus.engine.overflow_recovery": "recover",
            "nexus.interop.detect": "detect as detect_format read as read_transcripts",
            "nexus.interop.importing": "ImportReport import_transcript",
            "nexus.interop.readers": "FileReader add_readers",
            "nexus.interop.transcript": "FileReport TranscriptPiece Problem Step Transcript",
            "nexus.ledger.postgres": "PostgresLedger",
            "nexus.ledger.sessions": "NewQueuedEvent",
            "nexus.ledger.sqlite": "SqliteLedger",
            "nexus.ledger.store": "DocumentStore HistoryStore LedgerStore QueueStore SessionStore",
            "nexus.models.client": "ModelClient",
            "nexus.policy.link": "PrincipalLink link_principal",
            "nexus.workspace.plugins.spec": "hookimpl",
            "nexus.text.frames": "escape as escape_frames scan as scan_frames unescape as unescape_frames",
            "nexus.text.one_line": "escape_line_breaks unescape_line_breaks",
            "nexus.tokens.counter": "TokenCounter",
            "nexus.workspace.attachments": "attachment_from_file images_of media_parts",
            "nexus.workspace.credentials.secret": "Secret",
            "nexus.workspace.memory.consolidation": "accept as accept_facts propose as propose_facts reject as reject_facts",
            "nexus.workspace.source_context": "SourceContext EngineWorkspace",
            "nexus.workspace.sources.registry": "SourceSpec",
            "nexus.workspace.sources.skills": "discover_skills",
        },
    )


def __dir__() -> list[str]:
    return list(__all__)
