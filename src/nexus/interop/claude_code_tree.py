"""Tree of one Claude Code conversation: lines joined to messages, and the paths through them.

Each line names its parent. An assistant's message is spread over lines that share an id, with the results of parallel
calls between them, so parents often have several children without any going back. Here all lines of a message, with the
results of its calls, are one node; if a node still has two children, the user went back and continued differently. Lines
of hooks and of parallel results branch off on their own while the conversation goes on: a message after them follows the
newest one.
Parents precede their children in the file, so the tree is built in one pass and has no cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from msgspec.structs import replace

from nexus.interop.differences import is_beginning
from nexus.interop.transcript import AbandonedBranch, Step, TranscriptPiece, group_into_turns
from nexus.providers.received import CallIndex
from nexus.types.message import Message
from nexus.types.request import TokenUsage

START = -1
"""Index before the first node."""

_MOVED = "(moved)"
"""Stands for the line that a child names which was moved to a node from another one."""


@dataclass(slots=True)
class Node:
    """A message with the results of its calls, or a compaction. `cleared`: the conversation was cleared before it."""

    parent: int
    cleared: bool
    first: Step
    results: list[Step] = field(default_factory=list[Step])
    inserted: bool = False

    @property
    def last_key(self) -> str:
        """The key of the node's last piece."""
        return (self.results[-1] if self.results else self.first).keys[-1]


@dataclass(slots=True)
class Link:
    """Attachment of a line: the node, a clear in between, the compaction boundary, and the line that it names.

    `is_hook`: that line is a hook's, or follows one without a message between them.
    """

    node: int
    cleared: bool = False
    boundary: str = ""
    line: str = ""
    is_hook: bool = False


@dataclass(slots=True)
class Chain:
    """Nodes of the main conversation or of one side chain, with indexes for later lines."""

    name: str = ""
    nodes: list[Node] = field(default_factory=list[Node])
    calls: CallIndex = field(default_factory=CallIndex)
    by_message: dict[str, int] = field(default_factory=dict[str, int])
    by_call: dict[str, int] = field(default_factory=dict[str, int])
    request: str = ""
    """System prompt and tools of the newest request, by hash."""
    child_lines: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """The lines that a node's children name as their parent, by the node's index."""

    @property
    def last(self) -> int:
        """Index of the newest node; START if there is none."""
        return len(self.nodes) - 1

    def add(self, link: Link, step: Step, *, inserted: bool = False) -> int:
        """Add a node after the link's; return its index."""
        self.child_lines.setdefault(link.node, set())
        if self._is_side_branch(link):
            parent = self._newest_after(link.node)
        else:
            parent = link.node
        self.child_lines[link.node].add(link.line)
        if parent != link.node:
            self.child_lines.setdefault(parent, set()).add(_MOVED)
        self.nodes.append(Node(parent, link.cleared, step, inserted=inserted))
        self.calls.add(step.messages)
        return self.last

    def _is_side_branch(self, link: Link) -> bool:
        """Return True if the conversation continued elsewhere and the user did not go back to the link's node.

        A message that replaces another one names the same line as its parent.
        """
        lines = self.child_lines.get(link.node)
        if link.node == START or link.cleared or link.boundary or not lines or link.line in lines:
            return False
        return link.is_hook or lines == {_MOVED} or bool(self.nodes[link.node].results)

    def _newest_after(self, place: int) -> int:
        """Return the newest node that follows a node, directly or not."""
        for newest in range(self.last, place, -1):
            ancestor = newest
            while ancestor > place:
                ancestor = self.nodes[ancestor].parent
            if ancestor == place:
                return newest
        return place

    def add_assistant(
        self, link: Link, message: Message, key: str, usage: TokenUsage | None, stop: str, facts: dict[str, Any]
    ) -> int:
        """Add a piece of an assistant's message to the node with its id or as a new one; return the index."""
        place = self.by_message.get(message.id)
        if place is None:
            piece = TranscriptPiece(key, (message,))
            step = Step(pieces=(piece,), at_ms=message.at_ms, usage=usage, stop_reason=stop, facts=facts)
            self.by_message[message.id] = place = self.add(link, step)
        else:
            step = self.nodes[place].first
            pieces = (*step.pieces, TranscriptPiece(key, (message,)))
            if is_beginning(step.messages, (message,)):  # the line has all of the message so far, and more
                pieces = (*(TranscriptPiece(other) for other in step.keys), TranscriptPiece(key, (message,)))
            usage = usage or step.usage
            stop = stop or step.stop_reason
            self.nodes[place].first = replace(step, pieces=pieces, usage=usage, stop_reason=stop)
            self.calls.add((message,))
        self.by_call.update((call.id, place) for call in message.calls())
        return place

    def add_results(self, step: Step) -> int | None:
        """Add a line of tool results to the message with the call; return its index, None without one."""
        places = (self.by_call.get(result.call_id) for message in step.messages for result in message.results())
        place = next((place for place in places if place is not None), None)
        if place is None:
            return None
        self.nodes[place].results.append(step)
        self.calls.add(step.messages)
        return place


def paths(chain: Chain, *, ended: bool = False) -> tuple[tuple[Step, ...], tuple[AbandonedBranch, ...]]:
    """Return the path to the newest message, and the abandoned branches in the order of the file.

    `ended`: the last turn is known to be over.
    """
    children: list[list[int]] = [[] for _ in range(len(chain.nodes) + 1)]  # the last list is START's, at index -1
    newest = list(range(len(chain.nodes)))
    for place in range(len(chain.nodes) - 1, START, -1):
        parent = chain.nodes[place].parent
        children[parent].append(place)
        if parent != START:
            newest[parent] = max(newest[parent], newest[place])
    branches: list[int] = []
    main = _walk([], chain.nodes, children, newest, branches)
    branch_of = dict.fromkeys([START, *main], -1)
    forks: list[AbandonedBranch] = []
    while branches:
        start = heappop(branches)
        branch = _walk([start], chain.nodes, children, newest, branches)
        parent = chain.nodes[start].parent
        after = "" if parent == START else chain.nodes[parent].last_key
        branch_of.update(dict.fromkeys(branch, len(forks)))
        forks.append(AbandonedBranch(after, group_into_turns(tuple(_steps(chain.nodes, branch))), branch_of[parent]))
    return group_into_turns(tuple(_steps(chain.nodes, main)), ended=ended), tuple(forks)


def _walk(
    path: list[int], nodes: Sequence[Node], children: list[list[int]], newest: list[int], branches: list[int]
) -> list[int]:
    """Extend the path along the newest children; other children go to `branches`.

    Inserted messages without children are not branches and stay on the path.
    """
    place = path[-1] if path else START
    while options := sorted(children[place]):
        chosen = max(options, key=newest.__getitem__)
        for child in options:
            if child == chosen:
                continue
            if nodes[child].inserted and not children[child] and child < chosen:
                path.append(child)
            else:
                heappush(branches, child)
        path.append(chosen)
        place = chosen
    return path


def _steps(nodes: Sequence[Node], path: Sequence[int]) -> Iterator[Step]:
    for place in path:
        node = nodes[place]
        if node.cleared:
            yield Step("clear", (TranscriptPiece(f"{node.first.keys[0]}:clear"),), at_ms=node.first.at_ms)
        yield node.first
        # A user's message during calls is on the line of a result: results without one come first.
        yield from sorted(node.results, key=lambda step: any(message.role != "tool" for message in step.messages))
