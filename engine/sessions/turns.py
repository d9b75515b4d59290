"""A session's turn: one forward that it asks for, and what came of it.

A `TurnRunner` may run those of several sessions in one forward. The K/V and logits of
a session do not depend on who shares a forward with it (`engine.contracts.verifier`), so neither
does its stream.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from kakeya_fleet.engine.contracts.blocking import handed_on
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.memory.allocation import told_as_shortage
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.mean_pool import MeanPool
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.step import Step

Result = TypeVar("Result")


class Forwards(Protocol):
    """What runs feeds in one forward: a verifier, or who stands before one."""

    @property
    def row_counts(self) -> tuple[int, ...]:
        """See `Verifier`."""
        ...

    def forward_batch(self, feeds: Sequence[Feed], /) -> list[Output]:
        """See `Verifier`."""
        ...


class Fed(Protocol):
    """Whose turns they are; of its turns one at most is in a forward."""

    @property
    def verifier(self) -> Forwards:
        """Runs its forwards."""
        ...

    def not_run(self) -> None:
        """The forward of what was fed failed."""
        ...


class Turn(ABC, Generic[Result]):
    """One forward of a session, or several. Calling it runs it alone, in the calling thread."""

    decodes: ClassVar[bool]
    """Whether an answer in flight waits for it."""
    is_gathered: ClassVar[bool] = True
    """Whether its session is likely to come again soon, so that the next forward waits for it."""

    def __init__(self, session: Fed) -> None:
        self.session = session

    def __call__(self) -> Result:
        """Runs the turn alone."""
        told: Ended | None = None
        while told is None:
            (ended,) = run_turns([(self, self.rows)])
            told = self.told(ended)
        if told.error is not None:
            raise told.error
        return cast(Result, told.result)

    @property
    @abstractmethod
    def rows(self) -> int:
        """The most rows of a forward that it can use, 1 or more."""

    @property
    @abstractmethod
    def least_rows(self) -> int:
        """The fewest rows that it can be run with."""

    @abstractmethod
    def feed(self, rows: int) -> Feed | None:
        """What to run in at most `rows` rows; None when there is nothing to run."""

    @abstractmethod
    def outcome(self, output: Output | None) -> Result:
        """The result, from what came of `feed`; `output` is None when that was."""

    def told(self, ended: Ended) -> Ended | None:
        """What is told of a forward that ended so; None when the turn goes on with another."""
        return ended


class SessionTurn(Turn[Result]):
    """A turn of a session of the engine's."""

    session: Session

    def __init__(self, session: Session) -> None:
        super().__init__(session)


class TurnRunner(Protocol):
    """Runs turns in the thread of their verifier, perhaps several in one forward.

    Waits and cancellation are as with `engine.contracts.blocking.Runner`.
    """

    def __call__(self, turn: Turn[Result], /) -> Awaitable[Result]:
        """What the turn comes to, or raises."""
        ...


class PrefillTurn(SessionTurn[bool]):
    """Computes the K/V of some pending tokens; the result says whether more are pending."""

    decodes = False

    @property
    def rows(self) -> int:
        """Every pending token, as far as one forward takes them."""
        return max(1, min(self.session.pending, self.session.chunk))

    @property
    def least_rows(self) -> int:
        """A token at a time is progress."""
        return 1

    def feed(self, rows: int) -> Feed | None:
        """The next pending tokens."""
        return self.session.prefill_feed(rows)

    def outcome(self, output: Output | None) -> bool:
        """Whether more tokens are pending."""
        return self.session.prefilled(output) if output is not None else False


class ReadTurn(SessionTurn[bool]):
    """Reads some of a history into a pool; the result says whether more is to be read.

    The last token too, which prefill leaves: of a session that nobody generates from.
    """

    decodes = False

    def __init__(self, session: Session, pool: MeanPool) -> None:
        super().__init__(session)
        self._pool = pool

    @property
    def rows(self) -> int:
        """All that is not read, as far as one forward takes it."""
        return max(1, min(self.session.pending + 1, self.session.chunk))

    @property
    def least_rows(self) -> int:
        """A token at a time is progress."""
        return 1

    def feed(self, rows: int) -> Feed:
        """The next tokens."""
        return self.session.read_feed(rows)

    def outcome(self, output: Output | None) -> bool:
        """Whether more is to be read."""
        if output is None:
            raise ValueError("a text is read by a forward")
        self._pool.add(*self.session.read(output))
        return self._pool.count < len(self.session.history)


@dataclass(frozen=True, slots=True)
class Block:
    """What to verify: `draft`, at most `limit` tokens to commit, none behind `stop_ids`.

    `answer` is what the generation has said; it is the turn's while that runs.
    """

    draft: Sequence[int]
    sampling: SamplingParameters
    limit: int
    stop_ids: frozenset[int] = frozenset()
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified block; `seconds` are those of the forward with choosing the tokens.

    They began at `began`, in seconds of the turn's clock.
    """

    step: Step
    seconds: float
    began: float = 0.0


class VerifyTurn(SessionTurn[Verified]):
    """Verifies a block; the history has tokens and none of them is pending.

    Without the drafted tokens that cannot be what is chosen, because a grammar forbids them.
    """

    decodes = True

    def __init__(
        self, session: Session, block: Block, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`clock` gives monotonic seconds."""
        super().__init__(session)
        self._block = block
        self._clock = clock
        self._began = 0.0
        self._forbidden_count = 0

    @property
    def rows(self) -> int:
        """The last token and the draft, cut to what may be committed."""
        block = self._block
        return max(1, min(len(block.draft) + 1, block.limit, self.session.width))

    @property
    def least_rows(self) -> int:
        """A block is verified whole."""
        return self.rows

    def feed(self, rows: int) -> Feed:
        """The last token and the draft, up to the first token that is forbidden."""
        self._began = self._clock()
        draft, answer = self._block.draft[: rows - 1], self._block.answer
        count = len(draft) if answer is None else answer.fitting(draft)
        self._forbidden_count = len(draft) - count
        return self.session.verify_feed(draft[:count], self._block.limit)

    def outcome(self, output: Output | None) -> Verified:
        """What was committed."""
        if output is None:
            raise ValueError("a block is verified by a forward")
        block = self._block
        step = self.session.verified(output, block.sampling, block.stop_ids, block.answer)
        if self._forbidden_count:
            step = replace(step, forbidden_count=self._forbidden_count)
        return Verified(step, self._clock() - self._began, self._began)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a turn ended: with its result, or with its error."""

    result: object = None
    error: Exception | None = None


def run_turns(picked: Sequence[tuple[Turn[Any], int]]) -> list[Ended]:
    """Runs turns of different sessions of one verifier, each in at most so many rows.

    The rows together fit `row_counts[-1]`. What one turn raises is its own, the
    others end as they would without it: when the forward of several raises, each
    is run alone.
    """
    feeds: dict[int, Feed] = {}
    ends: dict[int, Ended] = {}
    for index, (turn, rows) in enumerate(picked):
        try:
            feed = turn.feed(rows)
            if feed is None:
                ends[index] = Ended(turn.outcome(None))
            else:
                feeds[index] = feed
        except BaseException as error:  # noqa: BLE001 handed to whoever awaits the turn
            ends[index] = Ended(error=handed_on(error))
    if feeds:
        running = {index: picked[index] for index in feeds}
        ends |= zip(running, _forwarded(list(running.values()), list(feeds.values())), strict=True)
    return [ends[index] for index in range(len(picked))]


def _forwarded(running: Sequence[tuple[Turn[Any], int]], feeds: Sequence[Feed]) -> list[Ended]:
    """Runs one forward and tells each turn what came of it."""
    verifier = running[0][0].session.verifier
    try:
        with told_as_shortage():
            outputs = verifier.forward_batch(feeds)
        if len(outputs) != len(feeds):
            raise ValueError(f"a forward of {len(feeds)} feeds has {len(outputs)} outputs")
    except BaseException as error:  # noqa: BLE001 handed to whoever awaits the turn
        failed = [_taken_back(turn, handed_on(error)) for turn, _rows in running]
        if len(running) == 1:
            return failed
        return [ended for one in running for ended in run_turns([one])]
    return [_outcome(turn, output) for (turn, _), output in zip(running, outputs, strict=True)]


def _taken_back(turn: Turn[Any], error: Exception) -> Ended:
    try:
        turn.session.not_run()
    except BaseException as another:  # noqa: BLE001 handed to whoever awaits the turn
        return Ended(error=handed_on(another))
    return Ended(error=error)


def _outcome(turn: Turn[Any], output: Output) -> Ended:
    try:
        return Ended(turn.outcome(output))
    except BaseException as error:  # noqa: BLE001 handed to whoever awaits the turn
        return Ended(error=handed_on(error))
