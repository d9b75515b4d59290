"""How a pull is told: a line that moves on a terminal, a line a phase elsewhere, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kakeya import PulledModel, PullPhase, PullProgress, PullSource
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.terminal.output import (
    fields_of,
    note,
    say,
    screen_size,
    write_json,
)
from kakeya_fleet.node.cli.terminal.quantities import bytes_text
from kakeya_fleet.node.cli.terminal.status_line import status_line
from kakeya_fleet.node.cli.terminal.transfer_text import progress_text

WORDS = {
    PullPhase.ASKING: "asking who has {model}",
    PullPhase.CHECKING: "checking what is there of {model}",
    PullPhase.COPYING: "pulling {model}",
    PullPhase.DOWNLOADING: "fetching {model} from the hub",
}


class PullView:
    """Of the pull of `model` to the node called `node`."""

    def __init__(self, model: str, node: str, *, as_json: bool) -> None:
        self._model = model
        self._node = node
        self._as_json = as_json
        self._line = None if as_json else status_line()
        self._phase: PullPhase | None = None
        self._left: set[str] = set()
        self.has_begun = False

    def take(self, told: PullProgress) -> None:
        """Shows how it stands."""
        self.has_begun = True
        progress = sanitized(told)
        if self._as_json:
            write_json({"event": "progress", "node": self._node, **fields_of(progress)})
            return
        self._tell_left(progress.sources)
        if self._line is not None:
            # A line that the terminal breaks could not be taken away again.
            room = screen_size(sys.stderr)[0] - 1
            self._line.show(pull_text(progress, self._model)[:room])
        elif progress.phase is not self._phase:
            note(pull_text(PullProgress(progress.phase, None, progress.sources), self._model))
        self._phase = progress.phase

    def end(self, told: PulledModel) -> None:
        """Says what is there."""
        pulled = sanitized(told)
        if self._as_json:
            write_json({"event": "pulled", "node": self._node, **fields_of(pulled)})
            return
        self._tell_left(pulled.sources)
        say(pulled_text(pulled, self._node))

    def close(self) -> None:
        """Takes away the line that moved."""
        if self._line is not None:
            self._line.clear()

    def _tell_left(self, sources: Sequence[PullSource]) -> None:
        """Says once of each source why nothing is taken from it any more."""
        for source in sources:
            if source.fault and source.node_id not in self._left:
                self._left.add(source.node_id)
                self.close()
                note(f"{source.node_name} was left: {source.fault}")


def pull_text(progress: PullProgress, model: str) -> str:
    """`pulling mistral from mini-1, mini-3: 40.0 MiB of 100 MiB, 40 %, 80.0 MB/s, 0.8 s left`."""
    words = WORDS.get(progress.phase, "pulling {model}").format(model=model)
    names = ", ".join(source.node_name for source in progress.sources if not source.fault)
    if names and progress.phase is PullPhase.COPYING:
        words = f"{words} from {names}"
    facts = progress_text(progress.transfer) if progress.transfer is not None else ""
    return f"{words}: {facts}" if facts else words


def pulled_text(pulled: PulledModel, node: str) -> str:
    """`mini-2 has mistral on its disk: 100 MiB in 5 files, 60.0 MiB from mini-1`."""
    already = " already" if pulled.was_there else ""
    words = f"{node} has {pulled.model_id} on its disk{already}"
    facts = []
    if pulled.file_count:
        facts.append(f"{bytes_text(pulled.byte_count)} in {pulled.file_count} files")
    facts += [
        f"{bytes_text(source.done_bytes)} from {source.node_name}"
        for source in pulled.sources
        if source.done_bytes
    ]
    return f"{words}: {', '.join(facts)}" if facts else words
