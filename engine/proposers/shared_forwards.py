"""Drafts of several sessions share the forwards of their model.

A forward of a token for each of eight sessions takes two to three times as long as one of a single
token: their rows share the reading of the weights. So drafts that are made at the same time go on
together, a token each in every forward, and one that begins joins the next. Source: iteration-level
scheduling, Yu et al., "Orca" (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, cast

from kakeya_fleet.engine.contracts.blocking import Result, Runner, handed_on
from kakeya_fleet.engine.contracts.draft import Draft, DraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.memory.allocation import told_as_shortage
from kakeya_fleet.engine.proposers.guesses import RowSeconds
from kakeya_fleet.engine.sessions.turns import Ended, Turn, TurnRunner

Forwarding: TypeAlias = Generator[Feed, Output, Result]
"""What yields its part of each forward that it needs, and is sent what came of it.

Or has thrown into it what the forward raised.
"""


class SharingDraftState(DraftState, Protocol):
    """One whose drafts share the forwards of its model with other sessions' drafts."""

    def proposing(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Forwarding[Draft]:
        """As `propose`, in forwards that others share."""
        ...


class SharedForwards:
    """Those of a model that drafts, and what they take. Belongs to the thread that runs them."""

    def __init__(self, verifier: Verifier, clock: Callable[[], float]) -> None:
        self._verifier = verifier
        self._clock = clock
        self.row_seconds = RowSeconds()
        self.sharers = 1
        """Drafts in the latest forward."""

    @property
    def row_counts(self) -> tuple[int, ...]:
        """See `Verifier`."""
        return self._verifier.row_counts

    def forward_batch(self, feeds: Sequence[Feed], /) -> list[Output]:
        """See `Verifier`. What only reads says nothing of drafts."""
        began = self._clock()
        outputs = self._verifier.forward_batch(feeds)
        self.sharers = len(feeds)
        if all(feed.want_logits for feed in feeds):
            rows = sum(len(feed.token_ids) for feed in feeds)
            self.row_seconds.seen(rows, self._clock() - began)
        return outputs


class Sharer:
    """Whose drafts they are: one of the sessions of a model."""

    def __init__(self, forwards: SharedForwards) -> None:
        self.verifier = forwards

    def not_run(self) -> None:
        """What it fed was written nowhere."""


class DraftTurn(Turn[Result]):
    """The forwards of one draft, or of more that its model is to do, one behind the other."""

    decodes = True
    # Its session comes again once its draft is verified.
    is_gathered = False

    def __init__(
        self,
        sharer: Sharer,
        forwarding: Forwarding[Result],
        others_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        """`forwarding` begins in the thread that runs the turn.

        While no others wait for that it goes on by itself: who drafts alone does not pay for the
        queue of turns at every token.
        """
        super().__init__(sharer)
        self._forwards = sharer.verifier
        self._others_wait = others_wait
        self._forwarding = forwarding
        self._feed: Feed | None = None
        self._ended: Ended | None = None
        self._has_begun = False

    @property
    def rows(self) -> int:
        """All that is fed."""
        if not self._has_begun:
            self._has_begun = True
            self._go_on(lambda: next(self._forwarding))
        return 1 if self._feed is None else len(self._feed.token_ids)

    @property
    def least_rows(self) -> int:
        """As `rows`."""
        return self.rows

    def feed(self, rows: int) -> Feed | None:  # noqa: ARG002 all of them
        """None where there is nothing left to compute."""
        return self._feed

    def outcome(self, output: Output | None) -> Result:
        """Goes on behind the forward; the result means something once `told` tells of it."""
        if output is not None:
            self._go_on(lambda: self._forwarding.send(output))
            while self._feed is not None and self._is_alone:
                self._go_on(partial(self._alone, self._feed))
        return cast(Result, None)

    def told(self, ended: Ended) -> Ended | None:
        """What all of it came to; None while a forward is wanted."""
        error = ended.error
        if error is not None and self._ended is None:
            self._go_on(lambda: self._forwarding.throw(error))
        return self._ended

    @property
    def _is_alone(self) -> bool:
        """Whether nobody shared the latest forward, or waits for the next one."""
        return self._forwards.sharers == 1 and not self._others_wait()

    def _alone(self, feed: Feed) -> Feed:
        """Runs what is fed; what is fed next."""
        try:
            with told_as_shortage():
                (output,) = self._forwards.forward_batch([feed])
        except Exception as error:  # noqa: BLE001 told to the draft, which knows its own
            return self._forwarding.throw(error)
        return self._forwarding.send(output)

    def _go_on(self, step: Callable[[], Feed]) -> None:
        try:
            self._feed = step()
        except StopIteration as over:
            self._feed, self._ended = None, Ended(over.value)
        except BaseException as error:  # noqa: BLE001 handed to whoever awaits the turn
            self._feed, self._ended = None, Ended(error=handed_on(error))


@dataclass(frozen=True, slots=True)
class Sharing:
    """How drafts of a model share its forwards."""

    forwards: SharedForwards
    run_turn: TurnRunner
    others_wait: Callable[[], bool]
    """Whether anybody else waits for the thread that runs the turns, which asks."""


class DraftSteps:
    """Runs what one session's drafts compute, beside others' where their model has them share."""

    def __init__(self, runner: Callable[[int], Runner], sharing: Sharing | None) -> None:
        """`runner(token_count)` runs a step that takes in so many tokens or vectors."""
        self._runner = runner
        self._sharing = sharing
        self._sharer = None if sharing is None else Sharer(sharing.forwards)

    def drafting(
        self,
        state: DraftState,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None,
    ) -> Forwarding[Draft]:
        """See `DraftState.propose`."""
        if self._sharing is None:
            return state.propose(assumed, block_size, step_count, drawing)
        sharer = cast(SharingDraftState, state)
        return (yield from sharer.proposing(assumed, block_size, step_count, drawing))

    async def run(self, forwarding: Forwarding[Result], token_count: int) -> Result:
        """What comes of it. Cancelled it ends with its forward. Raises as it does."""
        if self._sharing is None or self._sharer is None:
            return await self._runner(token_count)(partial(_at_once, forwarding))
        sharing = self._sharing
        turn = DraftTurn(self._sharer, forwarding, sharing.others_wait)
        return await sharing.run_turn(turn)


def _at_once(forwarding: Forwarding[Result]) -> Result:
    """Of one that shares no forwards."""
    try:
        next(forwarding)
    except StopIteration as ended:
        return cast(Result, ended.value)
    raise AssertionError("what shares no forwards asks for one")
