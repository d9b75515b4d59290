"""The calls that a node's effects ask for, over the network: exchanges and indirect probes.

What each side builds and merges is `fleet.membership.exchange`; what is here is when it
happens, as in the agent's gossip: a call that gets no answer in its time has failed, and
what comes after that is not heard.
"""

from __future__ import annotations

from collections.abc import Callable

from kakeya_fleet.fleet.membership.events import (
    Event,
    ExchangeFailed,
    ExchangeSucceeded,
    Heard,
    ProbeDone,
    ProbeOutcome,
)
from kakeya_fleet.fleet.membership.exchange import (
    ExchangeAnswer,
    ExchangeMessage,
    answer,
    follow_up,
    opening,
)
from kakeya_fleet.fleet.membership.randomness import Randomness
from scripts.simulator.agenda import Agenda
from scripts.simulator.cards import NOW_UNIX
from scripts.simulator.network import Network
from scripts.simulator.node import SimulatedNode
from scripts.simulator.wire_size import (
    PING_BYTES,
    PROBED_BYTES,
    answer_bytes,
    pong_bytes,
    probe_bytes,
    request_bytes,
)

Feed = Callable[[SimulatedNode, Event], None]


class Calls:
    """Starts calls; what comes of them is fed to the nodes."""

    def __init__(self, agenda: Agenda, network: Network, rng: Randomness, feed: Feed) -> None:
        self._agenda = agenda
        self._network = network
        self._rng = rng
        self._feed = feed

    def now_unix(self, node: SimulatedNode) -> float:
        """The node's wall clock, which may be wrong."""
        return NOW_UNIX + self._agenda.now + node.skew_seconds

    def exchange(self, caller: SimulatedNode, receiver: str, timeout: float) -> None:
        """Request, answer, and a second round when the roots differed."""
        self._exchange(caller, receiver, timeout, opening(caller.membership, receiver))

    def dial(self, caller: SimulatedNode, address: str, timeout: float) -> None:
        """The same with whoever answers at the address; a node that dials itself hears nothing."""
        receiver = self._network.at(address)
        if receiver is not None and receiver != caller.node_id:
            self._exchange(caller, receiver, timeout, opening(caller.membership))

    def _exchange(
        self, caller: SimulatedNode, receiver: str, timeout: float, message: ExchangeMessage
    ) -> None:
        is_over = False

        def expire() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._feed(caller, ExchangeFailed(receiver))

        def take(received: ExchangeAnswer) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            now_unix = self.now_unix(caller)
            cards, rumours = received.cards, received.rumours
            self._feed(caller, ExchangeSucceeded(receiver, cards, rumours, now_unix))
            further = follow_up(caller.membership, received, self._rng)
            if further is not None:
                self._request(caller, receiver, further, hear)

        def hear(received: ExchangeAnswer) -> None:
            now_unix = self.now_unix(caller)
            self._feed(caller, Heard(receiver, received.cards, received.rumours, now_unix))

        self._request(caller, receiver, message, take)
        self._agenda.after(timeout, lambda: caller.do(expire))

    def _request(
        self,
        caller: SimulatedNode,
        receiver: str,
        message: ExchangeMessage,
        take: Callable[[ExchangeAnswer], None],
    ) -> None:
        def respond() -> None:
            node = self._network.nodes[receiver]
            now_unix = self.now_unix(node)
            self._feed(node, Heard(message.sender_id, message.cards, message.rumours, now_unix))
            back = answer(node.membership, message)
            size = answer_bytes(back)
            self._network.send(receiver, caller.node_id, size, lambda: take(back))

        self._network.send(caller.node_id, receiver, request_bytes(message), respond)

    def probe(self, caller: SimulatedNode, subject: str, via: str, timeout: float) -> None:
        """Caller -> via -> subject and back; the helper answers in any case."""
        network, agenda = self._network, self._agenda
        is_told = is_settled = False

        def conclude(outcome: ProbeOutcome) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                self._feed(caller, ProbeDone(subject, via, outcome))

        def settle(outcome: ProbeOutcome) -> None:
            nonlocal is_settled
            if not is_settled:
                is_settled = True
                network.send(via, caller.node_id, PROBED_BYTES, lambda: conclude(outcome))

        def help_out() -> None:
            helper = network.nodes[via]

            def pong() -> None:
                card = network.nodes[subject].membership.registry.own.card
                size = pong_bytes(card)
                network.send(subject, via, size, lambda: settle(ProbeOutcome.REACHED))

            network.send(via, subject, PING_BYTES, pong)
            agenda.after(timeout, lambda: helper.do(lambda: settle(ProbeOutcome.UNREACHED)))

        network.send(caller.node_id, via, probe_bytes(subject, timeout), help_out)
        agenda.after(2 * timeout, lambda: caller.do(lambda: conclude(ProbeOutcome.SILENT)))
