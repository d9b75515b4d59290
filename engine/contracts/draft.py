"""The contract of proposers: they guess blocks of tokens and decide none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import ContextVectors, FeatureEncoder
from kakeya_fleet.engine.contracts.proposer_info import ProposerInfo
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues

MAX_BLOCK_SIZE = 64

ProposerKey = tuple[str, str]
"""Node id and model id of a proposer."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafted block: `token_ids` may be shorter than asked for, or empty.

    `compute_seconds` is the proposer's own time; `round_trip_seconds` the whole
    way as the caller saw it, equal to it for a proposer in the same process.
    """

    token_ids: tuple[int, ...]
    compute_seconds: float = 0.0
    round_trip_seconds: float = 0.0
    diffusion_step_count: int = 0
    forward_pass_count: int = 0

    @property
    def is_found(self) -> bool:
        """Whether no model made it: it stood in the text already, or there is none."""
        return not self.forward_pass_count and not self.diffusion_step_count


class DraftState(Protocol):
    """One session's state with a proposer. Owned by one thread at a time.

    `commit` may come from another thread while `read` runs, `take_back` while `propose` does.
    """

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether so much of the history is unread that it drafts nothing, which is no fault."""
        ...

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens to the history."""
        ...

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        """Drafts up to `block_size` tokens after history + `assumed`.

        `assumed` is not kept. `step_count` 0 is the model's default. `drawing` says how the
        verifier draws, None that it is greedy; what cannot draw drafts its likeliest tokens.
        The tokens depend on the text alone; how many they are, for what `ends_drafts`, on time too.
        """
        ...

    def take_back(self) -> None:
        """Nobody wants the draft that is being made now: it ends soon, with what it has."""
        ...

    def read(self) -> None:
        """Reads some of the history that it is behind, in a bounded time. Raises `DraftFailed`."""
        ...

    def take_keys_values(self, first: int, count: int, numbers: KeysValues) -> None:
        """Those of `count` >= 1 committed positions from `first` on, of a verifier of its weights.

        What it cannot use it reads by itself. Raises `BadParameters` for numbers that are not
        those of so many positions of its model, `DraftFailed` where it has no memory for them.
        """
        ...

    def close(self) -> None:
        """Gives back what it holds besides its own memory; it is not used again."""
        ...


class EagerDraftState:
    """A state that reads as it commits, drafts at once, and holds its own memory alone."""

    @property
    def is_behind(self) -> bool:
        """Never."""
        return False

    def take_back(self) -> None:
        """A draft is one step, or few."""

    def read(self) -> None:
        """There is nothing to read."""

    def take_keys_values(self, first: int, count: int, numbers: KeysValues) -> None:
        """It has none."""

    def close(self) -> None:
        """There is nothing to give back."""


@runtime_checkable
class ConditionedDraftState(DraftState, Protocol):
    """A session's state with a proposer that needs context vectors.

    Vectors of every committed position but the last are what `propose` wants:
    the last has been through no forward yet. Those of older positions may be
    missing: the draft is then worse.
    """

    @property
    def features_end(self) -> int:
        """The position behind the last vector known here."""
        ...

    def take_features(self, first: int, vectors: ContextVectors) -> None:
        """Context vectors [n, width] of positions `first` onwards.

        What is known already is ignored; a gap before `first` forgets what was
        before it. Raises `DraftFailed` (FEATURES), with nothing taken, for another
        shape and for numbers that are not finite.
        """
        ...


class Proposer(Protocol):
    """A loaded proposer."""

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        ...

    @property
    def info(self) -> ProposerInfo:
        """What it is."""
        ...

    @property
    def encoder(self) -> FeatureEncoder | None:
        """What makes its context vectors on the verifier's side; None when it needs none.

        With one, `open` gives a `ConditionedDraftState`.
        """
        ...

    def open(self, prefix: Sequence[int]) -> DraftState:
        """State for one session whose history is `prefix`."""
        ...


class DraftSource(Protocol):
    """Where the speculative loop gets its drafts: in process, or over a stream.

    The history only grows between calls. Several calls may be in flight; they
    are answered in order. Raises `engine.errors.DraftFailed`. Cancelling the
    awaiting task takes the proposal back.
    """

    @property
    def drafts_ahead(self) -> bool:
        """Whether it can draft behind assumed tokens; one that needs their features cannot."""
        ...

    async def draft(
        self,
        history: Sequence[int],
        assumed: Sequence[int],
        block_size: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        """A draft that continues `history` + `assumed`, for a verifier that draws so."""
        ...

    def open(self, history: Sequence[int]) -> None:
        """Begins what takes time before the first draft behind `history`; waits for nothing.

        What cannot be had fails the next draft.
        """
        ...

    def rest(self) -> None:
        """Gives up what it keeps elsewhere for an idle session; the next draft begins it anew."""
        ...

    async def close(self) -> None:
        """Ends the source; drafts in flight fail with UNREACHABLE."""
        ...
