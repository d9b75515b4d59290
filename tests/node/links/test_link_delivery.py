"""Each tensor arrives once and in order, whatever fails on its way: a machine that tries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kakeya_fleet.node.links.protocol.changes import ChangeCause
from kakeya_fleet.node.links.protocol.contract import LinkMode, RoadKind
from kakeya_fleet.node.links.protocol.delivery import (
    CHUNKS,
    MOST_CORRUPT_TIMES,
    MOST_TENSORS,
    Arrivals,
    Kept,
    Outbox,
)
from kakeya_fleet.node.links.protocol.messages import RoadMessage, RoadStep
from kakeya_fleet.node.links.protocol.promotion import MOST_CLEARING, NONCE_BYTES, step
from kakeya_fleet.node.links.protocol.promotion_events import (
    Answer,
    Broke,
    Build,
    Built,
    Changed,
    Cleared,
    Drop,
    Effect,
    Event,
    Heard,
    LookAgain,
    Planned,
    Propose,
    Received,
    Resend,
    ResendCorrupt,
    Say,
    SetOut,
    Tick,
    Timed,
    Took,
    Unavailable,
    Use,
)
from kakeya_fleet.node.links.protocol.promotion_state import Standing, opened
from kakeya_fleet.node.links.protocol.road_use import takes_road
from kakeya_fleet.node.links.protocol.settings import LARGE_BYTES, LinkSettings
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor
from kakeya_fleet.node.links.protocol.trial import SAMPLES, WORTH
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

BUDGET = 100


def tensor(number: int, byte_count: int = 10) -> WireTensor:
    return WireTensor(str(number), TensorDtype.INT8, (byte_count,), bytes(byte_count))


@dataclass
class Announced:
    tensor_id: int
    tensor: WireTensor
    generation: int


@dataclass
class Chunked:
    tensor_id: int
    tensor: WireTensor


class End:
    """One end's promotion, and what it has begun: (what is to be done, generation)."""

    def __init__(self, mode: LinkMode, *, is_caller: bool) -> None:
        settings = LinkSettings(large_tensors=1)
        self.promotion = opened(mode, (RoadKind.LOCAL,), is_caller=is_caller, settings=settings)
        self.to_do: list[tuple[str, int]] = []
        self.begun = 0
        self.using: int | None = None


class LinkMachine(RuleBasedStateMachine):
    """Both ends of a link whose caller sends: a stream in order, and roads that lose things.

    The ends hold what the real ones do: promotions, the sender's outbox, the receiver's
    arrivals. Every message of theirs is one that the other expects: a `TensorOutOfOrder`
    anywhere fails. Numbers of bytes are small; promotion is told that they are large.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outbox, self.arrivals = Outbox(BUDGET), Arrivals()
        self.sent: list[int] = []
        self.received: list[int] = []
        self.sizes: list[int] = []
        # In order: to the receiver, back to the sender, on the road.
        self.forth: list[RoadMessage | Announced | Chunked] = []
        self.back: list[RoadMessage | int] = []
        self.road: list[Announced] = []
        self.corrupt_times: dict[int, int] = {}
        self.paces: dict[bool, list[float]] = {True: [], False: []}
        self.now = 0.0

    @initialize(mode=st.sampled_from([LinkMode.LOCAL, LinkMode.AUTO]))
    def open(self, mode: LinkMode) -> None:
        self.caller, self.served = End(mode, is_caller=True), End(mode, is_caller=False)
        self.tell(self.caller, Tick())

    def tell(self, end: End, event: Event) -> None:
        before = end.promotion.road
        for effect in step(end.promotion, event, self.now):
            self.do(end, effect)
        if isinstance(event, Broke) and before is not None:
            # Any fault demotes, and says why.
            assert end.promotion.road is not before or before.generation != event.generation

    def do(self, end: End, effect: Effect) -> None:
        match effect:
            case Propose(generation, _):
                end.begun += 1
                end.to_do.append(("plan", generation))
            case Answer(generation, _, _, _):
                end.begun += 1
                end.to_do += [("plan", generation), ("build", generation)]
            case Build(generation, _):
                end.to_do.append(("build", generation))
            case Use(generation):
                end.using = generation
                # The other end may begin to use it later than the caller compares.
                if end is self.caller:
                    self.paces = {True: [], False: []}
            case Drop(generation):
                end.to_do = [each for each in end.to_do if each[1] != generation]
                end.to_do.append(("clear", 0))
                end.using = None if end.using == generation else end.using
            case Say(message):
                if message.step is RoadStep.FAILED:
                    assert message.reason
                    through = self.arrivals.through if end is self.served else 0
                    message = replace(message, through=through)
                (self.forth if end is self.caller else self.back).append(message)
            case Resend(generation, through):
                self.taken(through if end is self.caller else 0)
                self.outbox.road_failed(generation if end is self.caller else -1)
            case ResendCorrupt(tensor_id):
                self.outbox.came_corrupt(tensor_id)
            case Changed(before):
                self.changed(end, before)

    def changed(self, end: End, before: Standing) -> None:
        standing = end.promotion.standing
        assert standing.reason
        assert standing is not before
        if standing.cause is ChangeCause.FASTER and standing.kind is RoadKind.LOCAL:
            assert end is self.caller
            paces = self.paces
            assert min(len(paces[True]), len(paces[False])) >= SAMPLES
            assert median(paces[True][-15:]) <= WORTH * median(paces[False][-15:])

    @precondition(lambda self: self.caller.to_do or self.served.to_do)
    @rule(first=st.booleans(), fate=st.sampled_from(["works"] * 4 + ["breaks", "unavailable"]))
    def work(self, first: bool, fate: str) -> None:
        end = next(e for e in (self.caller, self.served)[:: 1 if first else -1] if e.to_do)
        what, generation = end.to_do.pop(0)
        if what == "clear":
            end.begun -= 1
            self.tell(end, Cleared())
        elif what == "plan" and fate == "unavailable":
            end.to_do = [each for each in end.to_do if each[1] != generation]
            end.begun -= 1
            self.tell(end, Unavailable(generation, "not here"))
            self.tell(end, Cleared())
        elif fate == "breaks":
            self.tell(end, Broke(generation, "it broke"))
        elif what == "plan":
            self.tell(end, Planned(generation, {}, bytes(NONCE_BYTES)))
        else:
            self.tell(end, Built(generation))

    @rule(seconds=st.sampled_from([0.1, 1.0, 30.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for end in (self.caller, self.served):
            self.tell(end, Tick())

    @rule()
    def host_has_more(self) -> None:
        self.tell(self.caller, LookAgain())

    @rule(byte_count=st.integers(0, 60))
    def send(self, byte_count: int) -> None:
        room = self.outbox.has_room(byte_count)
        assert room == (
            self.outbox.last_id == self.outbox.taken
            or sum(self.sizes[self.outbox.taken :]) + byte_count <= BUDGET
        )
        if not room:
            with pytest.raises(ValueError, match="budget"):
                self.outbox.add(tensor(0, byte_count))
            return
        number = len(self.sent) + 1
        assert self.outbox.add(tensor(number, byte_count)) == number
        self.sent.append(number)
        self.sizes.append(byte_count)
        self.tell(self.caller, Took())

    @rule()
    def set_out(self) -> None:
        kept = self.outbox.next()
        if kept is None:
            assert self.outbox.under_way == self.outbox.last_id - self.outbox.taken
            return
        generation = self.caller.using
        by_road = not kept.is_again and takes_road(self.caller.promotion, LARGE_BYTES)
        if not kept.is_again:
            self.tell(self.caller, SetOut(LARGE_BYTES))
        if by_road:
            road = self.caller.promotion.road
            assert road is not None
            assert generation == road.generation
            self.outbox.sent(kept.tensor_id, generation, self.now)
            self.forth.append(Announced(kept.tensor_id, kept.tensor, generation))
        else:
            self.outbox.sent(kept.tensor_id, CHUNKS, self.now)
            self.forth.append(Chunked(kept.tensor_id, kept.tensor))

    @precondition(lambda self: self.forth)
    @rule(corrupt=st.booleans())
    def message_arrives(self, corrupt: bool) -> None:
        message = self.forth.pop(0)
        match message:
            case RoadMessage():
                self.tell(self.served, Heard(message))
            case Announced():
                # What the caller announces is of a road that this end was ready for.
                assert 1 <= message.generation <= self.served.promotion.promised
                self.arrivals.announce(message.tensor_id)
                if message.generation == self.served.using:
                    self.road.append(message)
            case Chunked():
                self.chunked(message, corrupt)

    def chunked(self, message: Chunked, corrupt: bool) -> None:
        wanted = self.arrivals.begin(message.tensor_id)
        times = self.corrupt_times.get(message.tensor_id, 0)
        if corrupt and times < MOST_CORRUPT_TIMES - 1:
            assert self.arrivals.came_corrupt(message.tensor_id) == wanted
            if wanted:
                self.corrupt_times[message.tensor_id] = times + 1
                through = message.tensor_id - 1
                self.back.append(RoadMessage(0, RoadStep.FAILED, through=through, reason="bits"))
            return
        self.arrived(message, by_road=False)

    @precondition(lambda self: self.road)
    @rule(fate=st.sampled_from(["whole", "whole", "whole", "lost", "corrupt"]))
    def road_carries(self, fate: str) -> None:
        message = self.road.pop(0)
        if fate == "whole":
            # It may have been read before the road was left, and be checked after that.
            self.arrived(message, by_road=True)
        elif message.generation == self.served.using:
            # Silently lost: the deadline of its receiver passes. Corrupt: it sees so.
            self.tell(self.served, Broke(message.generation, "a tensor was lost"))

    def arrived(self, message: Announced | Chunked, by_road: bool) -> None:
        for each in self.arrivals.arrive(message.tensor_id, message.tensor):
            self.received.append(int(each.name))
        self.back.append(self.arrivals.through)
        self.tell(self.served, Received(by_road=by_road))

    @precondition(lambda self: self.caller.using)
    @rule()
    def the_road_breaks_at_the_caller(self) -> None:
        assert self.caller.using is not None
        self.tell(self.caller, Broke(self.caller.using, "it broke"))
        assert self.caller.promotion.standing.kind is RoadKind.GRPC

    @precondition(lambda self: self.back)
    @rule()
    def answer_arrives(self) -> None:
        message = self.back.pop(0)
        if isinstance(message, RoadMessage):
            self.tell(self.caller, Heard(message))
        else:
            self.taken(message)

    def taken(self, through: int) -> None:
        for kept in self.outbox.take(through):
            if not kept.is_again:
                self.timed(kept.way != CHUNKS, 1.0)

    def timed(self, by_road: bool, seconds: float) -> None:
        self.paces[by_road].append(seconds / LARGE_BYTES)
        self.tell(self.caller, Timed(LARGE_BYTES, seconds, by_road))

    @precondition(lambda self: self.caller.using)
    @rule(ratio=st.sampled_from([0.2, 0.8, 0.95, 3.0]), count=st.integers(1, 4 * SAMPLES))
    def many_are_timed(self, ratio: float, count: int) -> None:
        for _ in range(count):
            by_road = takes_road(self.caller.promotion, LARGE_BYTES)
            self.tell(self.caller, SetOut(LARGE_BYTES))
            self.timed(by_road, ratio if by_road else 1.0)
            if not self.caller.using:
                return

    @invariant()
    def in_order_and_once(self) -> None:
        assert self.received == self.sent[: len(self.received)]

    @invariant()
    def within_the_budget(self) -> None:
        kept = self.sizes[self.outbox.taken :]
        assert sum(kept) <= BUDGET or len(kept) == 1

    @invariant()
    def nothing_is_forgotten_too_early(self) -> None:
        assert self.outbox.taken <= len(self.received)

    @invariant()
    def every_road_that_was_begun_is_known(self) -> None:
        for end in (self.caller, self.served) if self.forth or self.sent else ():
            assert end.promotion.clearing_count == end.begun <= MOST_CLEARING + 1
            assert end.using == (end.promotion.road and end.promotion.road.generation)

    def teardown(self) -> None:
        """However it stands, what is left arrives when nothing more fails."""
        for _ in range(12 * len(self.sent) + 12):
            self.set_out()
            while self.forth:
                self.message_arrives(corrupt=False)
            while self.road:
                self.road_carries("whole")
            while self.back:
                self.answer_arrives()
        assert self.received == self.sent
        assert self.outbox.under_way == 0
        assert self.outbox.has_room(BUDGET)
        assert self.arrivals.early_bytes == self.arrivals.early_count == 0


LinkMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=60)
TestLink = LinkMachine.TestCase


def next_of(outbox: Outbox) -> Kept:
    kept = outbox.next()
    assert kept is not None
    return kept


def test_what_goes_again_goes_first_and_only_what_has_not_arrived() -> None:
    outbox = Outbox(1000)
    for number in range(1, 6):
        outbox.add(tensor(number))
    for number, way in ((1, 7), (2, CHUNKS), (3, 7), (4, 8)):
        outbox.sent(number, way, 0.0)
    outbox.take(1)
    outbox.road_failed(7)
    kept = next_of(outbox)
    assert (kept.tensor_id, kept.is_again) == (3, True)
    outbox.sent(3, CHUNKS, 1.0)
    assert (next_of(outbox).tensor_id, next_of(outbox).is_again) == (5, False)
    outbox.came_corrupt(2)
    outbox.came_corrupt(1)
    outbox.came_corrupt(5)
    assert next_of(outbox).tensor_id == 2
    outbox.take(4)
    # It arrived before it went again.
    assert next_of(outbox).tensor_id == 5


def test_tensors_without_bytes_are_bounded_too() -> None:
    outbox = Outbox(1000)
    for number in range(MOST_TENSORS):
        assert outbox.has_room(0)
        outbox.add(tensor(number, 0))
    assert not outbox.has_room(0)


def test_what_never_set_out_has_not_arrived() -> None:
    outbox = Outbox(1000)
    outbox.add(tensor(1))
    with pytest.raises(TensorOutOfOrder):
        outbox.take(1)
    outbox.sent(1, CHUNKS, 0.0)
    assert [kept.tensor_id for kept in outbox.take(1)] == [1]
    assert outbox.take(1) == outbox.take(0) == []
    with pytest.raises(TensorOutOfOrder):
        outbox.take(2)


def test_numbers_that_are_left_out_end_the_link() -> None:
    arrivals = Arrivals()
    for number in (0, 2):
        with pytest.raises(TensorOutOfOrder):
            arrivals.begin(number)
        with pytest.raises(TensorOutOfOrder):
            arrivals.announce(number)
    arrivals.announce(1)
    with pytest.raises(TensorOutOfOrder):
        # It would be carried twice.
        arrivals.announce(1)
    assert arrivals.begin(1)
    assert arrivals.begin(2)
    arrivals.arrive(2, tensor(2))
    assert not arrivals.begin(2)
    assert (arrivals.through, arrivals.early_bytes) == (0, 10)
    assert [each.name for each in arrivals.arrive(1, tensor(1))] == ["1", "2"]
    for again in (1, 2):
        assert arrivals.arrive(again, tensor(again)) == []
    assert (arrivals.through, arrivals.early_bytes) == (2, 0)


def test_a_tensor_that_keeps_coming_corrupt_ends_the_link() -> None:
    arrivals = Arrivals()
    arrivals.begin(1)
    assert arrivals.came_corrupt(1)
    assert arrivals.came_corrupt(1)
    with pytest.raises(TensorOutOfOrder, match="3 times"):
        arrivals.came_corrupt(1)
    arrivals.arrive(1, tensor(1))
    assert not arrivals.came_corrupt(1)
