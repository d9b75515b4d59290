"""How a load is told: a line that moves on a terminal, a line a phase elsewhere, or JSON."""

from __future__ import annotations

import sys

from kakeya import LoadedModel, LoadPhase, LoadProgress
from kakeya_fleet.node.cli.terminal.output import (
    fields_of,
    note,
    say,
    screen_size,
    write_json,
)
from kakeya_fleet.node.cli.terminal.status_line import status_line
from kakeya_fleet.node.cli.terminal.transfer_text import progress_text

WORDS = {
    LoadPhase.WAITING: "{model} waits on {node}: another model is loaded or unloaded first",
    LoadPhase.FETCHING: "fetching {model}",
    LoadPhase.READING: "reading {model}",
    LoadPhase.CHECKING: "checking and measuring {model}",
}


class LoadView:
    """Of the load of `model` on the node called `node`."""

    def __init__(self, model: str, node: str, *, as_json: bool) -> None:
        self._model = model
        self._node = node
        self._as_json = as_json
        self._line = None if as_json else status_line()
        self._phase: LoadPhase | None = None
        self.has_begun = False

    def take(self, progress: LoadProgress) -> None:
        """Shows how it stands."""
        self.has_begun = True
        if self._as_json:
            write_json({"event": "progress", "node": self._node, **fields_of(progress)})
        elif self._line is not None:
            # A line that the terminal breaks could not be taken away again.
            room = screen_size(sys.stderr)[0] - 1
            self._line.show(load_text(progress, self._model, self._node)[:room])
        elif progress.phase is not self._phase:
            note(load_text(LoadProgress(progress.phase, None), self._model, self._node))
        self._phase = progress.phase

    def end(self, loaded: LoadedModel) -> None:
        """Says what is served."""
        if self._as_json:
            write_json({"event": "loaded", "node": self._node, **fields_of(loaded)})
            return
        say(loaded_text(loaded, self._node))

    def close(self) -> None:
        """Takes away the line that moved."""
        if self._line is not None:
            self._line.clear()


def load_text(progress: LoadProgress, model: str, node: str) -> str:
    """`reading smollm2: 40.0 MiB of 100 MiB, 40 %, 80.0 MB/s, 0.8 s left`."""
    words = WORDS.get(progress.phase, "loading {model}").format(model=model, node=node)
    moves = progress.transfer is not None and progress.phase is not LoadPhase.CHECKING
    facts = progress_text(progress.transfer) if moves and progress.transfer is not None else ""
    return f"{words}: {facts}" if facts else words


def loaded_text(loaded: LoadedModel, node: str) -> str:
    """`mini-1 serves smollm2 as a verifier: torch, bfloat16, int4-g32-f16`."""
    offer = loaded.offer
    facts = ", ".join(filter(None, (offer.backend, offer.dtype, offer.quantization)))
    already = " already" if loaded.was_served else ""
    words = f"{node} serves {offer.model_id} as a {offer.role.value}{already}"
    return f"{words}: {facts}" if facts else words
