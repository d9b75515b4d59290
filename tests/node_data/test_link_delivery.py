"""Each tensor arrives once and in order, whatever fails on its way: a machine that tries."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kakeya_fleet.node.links.delivery import (
    CHUNKS,
    MOST_CORRUPT_TIMES,
    MOST_TENSORS,
    Arrivals,
    Outbox,
)
from kakeya_fleet.node.links.wire_tensor import WireTensor
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

BUDGET = 100


def tensor(number, byte_count=10):
    return WireTensor(str(number), 4, (byte_count,), bytes(byte_count))


@dataclass
class Announced:
    tensor_id: int
    tensor: WireTensor
    generation: int


@dataclass
class Chunked:
    tensor_id: int
    tensor: WireTensor


@dataclass
class Failed:
    generation: int
    through: int


class DeliveryMachine(RuleBasedStateMachine):
    """A direction: a control stream in order, and a road that may lose what it carries.

    Both ends hold what the real ones do: the sender's outbox, the receiver's arrivals.
    """

    def __init__(self):
        super().__init__()
        self.outbox, self.arrivals = Outbox(BUDGET), Arrivals()
        self.sent, self.received = [], []
        self.sizes = []
        # In order: to the receiver, back to the sender, on the road.
        self.forth, self.back, self.road = [], [], []
        self.generation, self.left_by_sender, self.left_by_receiver = 1, 0, 0
        self.corrupt_times = {}
        self.now = 0.0

    @rule(byte_count=st.integers(0, 60))
    def send(self, byte_count):
        room = self.outbox.has_room(byte_count)
        assert room == (
            not self.outbox.kept_bytes + sum(self._kept_count())
            or self.outbox.kept_bytes + byte_count <= BUDGET
        )
        if not room:
            with pytest.raises(ValueError, match="budget"):
                self.outbox.add(tensor(0, byte_count))
            return
        number = len(self.sent) + 1
        assert self.outbox.add(tensor(number, byte_count)) == number
        self.sent.append(number)
        self.sizes.append(byte_count)

    def _kept_count(self):
        return [1] * (self.outbox.last_id - self.outbox.taken)

    @rule(by_road=st.booleans())
    def set_out(self, by_road):
        kept = self.outbox.next()
        if kept is None:
            assert not self.outbox.has_waiting
            return
        self.now += 1
        if by_road and not kept.is_again and self.left_by_sender < self.generation:
            self.outbox.sent(kept.tensor_id, self.generation, self.now)
            self.forth.append(Announced(kept.tensor_id, kept.tensor, self.generation))
        else:
            self.outbox.sent(kept.tensor_id, CHUNKS, self.now)
            self.forth.append(Chunked(kept.tensor_id, kept.tensor))

    @precondition(lambda self: self.forth)
    @rule(corrupt=st.booleans())
    def message_arrives(self, corrupt):
        message = self.forth.pop(0)
        if isinstance(message, Announced):
            self.arrivals.announce(message.tensor_id)
            if message.generation > self.left_by_receiver:
                self.road.append(message)
        elif isinstance(message, Failed):
            if message.generation > self.left_by_receiver:
                self._receiver_leaves(message.generation)
        else:
            self._chunked(message, corrupt)

    def _chunked(self, message, corrupt):
        wanted = self.arrivals.begin(message.tensor_id)
        times = self.corrupt_times.get(message.tensor_id, 0)
        if corrupt and times < MOST_CORRUPT_TIMES - 1:
            again = self.arrivals.came_corrupt(message.tensor_id)
            assert again == wanted
            if again:
                self.corrupt_times[message.tensor_id] = times + 1
                self.back.append(("corrupt", message.tensor_id))
            return
        self._arrived(message)

    @precondition(lambda self: self.road)
    @rule(fate=st.sampled_from(["whole", "whole", "whole", "lost", "corrupt"]))
    def road_carries(self, fate):
        message = self.road.pop(0)
        if message.generation <= self.left_by_receiver:
            # It was read before the road was left, and is checked after that.
            if fate == "whole":
                self._arrived(message)
            return
        if fate == "whole":
            self._arrived(message)
        else:
            # Silently lost: the deadline of its receiver passes. Corrupt: it sees so.
            self._receiver_leaves(message.generation)

    def _arrived(self, message):
        for each in self.arrivals.arrive(message.tensor_id, message.tensor):
            self.received.append(int(each.name))
        self.back.append(("taken", self.arrivals.through))

    def _receiver_leaves(self, generation):
        self.left_by_receiver = generation
        self.back.append(("failed", generation, self.arrivals.through))

    @precondition(lambda self: self.left_by_sender < self.generation)
    @rule()
    def sender_leaves(self):
        self.left_by_sender = self.generation
        self.forth.append(Failed(self.generation, 0))

    @precondition(
        lambda self: (
            self.left_by_sender == self.left_by_receiver == self.generation and not self.back
        )
    )
    @rule()
    def another_road(self):
        self.generation += 1

    @precondition(lambda self: self.back)
    @rule()
    def answer_arrives(self):
        kind, *rest = self.back.pop(0)
        if kind == "corrupt":
            self.outbox.came_corrupt(*rest)
        elif kind == "taken":
            self.outbox.take(*rest)
        else:
            generation, through = rest
            if self.left_by_sender < generation:
                self.left_by_sender = generation
                self.forth.append(Failed(generation, 0))
            self.outbox.take(through)
            self.outbox.road_failed(generation)

    @invariant()
    def in_order_and_once(self):
        assert self.received == self.sent[: len(self.received)]

    @invariant()
    def within_the_budget(self):
        kept = self.sizes[self.outbox.taken :]
        assert self.outbox.kept_bytes == sum(kept)
        assert sum(kept) <= BUDGET or len(kept) == 1

    @invariant()
    def nothing_is_forgotten_too_early(self):
        assert self.outbox.taken <= len(self.received)

    def teardown(self):
        """However it stands, what is left arrives when nothing more fails."""
        for _ in range(12 * len(self.sent) + 12):
            self.set_out(by_road=False)
            while self.forth:
                self.message_arrives(corrupt=False)
            while self.road:
                self.road_carries("whole")
            while self.back:
                self.answer_arrives()
        assert self.received == self.sent
        assert self.outbox.kept_bytes == self.outbox.under_way == 0
        assert self.arrivals.early_bytes == self.arrivals.early_count == 0


DeliveryMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=60)
TestDelivery = DeliveryMachine.TestCase


def test_what_goes_again_goes_first_and_only_what_has_not_arrived():
    outbox = Outbox(1000)
    for number in range(1, 6):
        outbox.add(tensor(number))
    for number, way in ((1, 7), (2, CHUNKS), (3, 7), (4, 8)):
        outbox.sent(number, way, 0.0)
    outbox.take(1)
    outbox.road_failed(7)
    kept = outbox.next()
    assert (kept.tensor_id, kept.is_again) == (3, True)
    outbox.sent(3, CHUNKS, 1.0)
    assert (outbox.next().tensor_id, outbox.next().is_again) == (5, False)
    outbox.came_corrupt(2)
    outbox.came_corrupt(1)
    outbox.came_corrupt(5)
    assert outbox.next().tensor_id == 2
    outbox.take(4)
    # It arrived before it went again.
    assert outbox.next().tensor_id == 5


def test_tensors_without_bytes_are_bounded_too():
    outbox = Outbox(1000)
    for number in range(MOST_TENSORS):
        assert outbox.has_room(0)
        outbox.add(tensor(number, 0))
    assert not outbox.has_room(0)


def test_what_never_set_out_has_not_arrived():
    outbox = Outbox(1000)
    outbox.add(tensor(1))
    with pytest.raises(TensorOutOfOrder):
        outbox.take(1)
    outbox.sent(1, CHUNKS, 0.0)
    assert [kept.tensor_id for kept in outbox.take(1)] == [1]
    assert outbox.take(1) == outbox.take(0) == []
    with pytest.raises(TensorOutOfOrder):
        outbox.take(2)


def test_numbers_that_are_left_out_end_the_link():
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


def test_a_tensor_that_keeps_coming_corrupt_ends_the_link():
    arrivals = Arrivals()
    arrivals.begin(1)
    assert arrivals.came_corrupt(1)
    assert arrivals.came_corrupt(1)
    with pytest.raises(TensorOutOfOrder, match="3 times"):
        arrivals.came_corrupt(1)
    arrivals.arrive(1, tensor(1))
    assert not arrivals.came_corrupt(1)
