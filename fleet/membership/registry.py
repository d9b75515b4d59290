"""What this node holds of the fleet: a card and a liveness register a node.

The card register is the maximum over (incarnation, sequence, SHA-256 of the
signed bytes), the liveness register the maximum over (incarnation, rank) with
ALIVE < SUSPECT < DEAD < LEFT. A card proves its owner alive at its incarnation,
and a statement about an incarnation whose card is not held says nothing yet
(the digest brings both again), so that both registers always stand at the same
incarnation, which the owner signed: no forged statement outlives a refutation.
What others say makes a node SUSPECT at most; DEAD is what this node found itself.
Each register is a maximum over a total order: the map of nodes is a
join-semilattice, merge is commutative, associative and idempotent.

The owner's own registers are never changed by others. Tombstones (DEAD, LEFT)
are no part of the root hash, so that fleets agree that differ only in what they
have not forgotten yet; they are in the digest, so that whoever holds such a node
alive learns better, and nobody learns of it who never knew it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kakeya_fleet.fleet.cards.card import Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.cards.rules import CardRule
from kakeya_fleet.fleet.cards.signed_message import Verify
from kakeya_fleet.fleet.errors import CardRejected, NodeNotFound
from kakeya_fleet.fleet.membership.digest import (
    MAX_DIGEST_LINES,
    DigestEntry,
    DigestPart,
    Version,
    node_key,
)
from kakeya_fleet.fleet.membership.events import UNKNOWN_SOURCE, ReceivedCard, Source
from kakeya_fleet.fleet.membership.merge_rules import (
    MergeRules,
    RumourRule,
    Usable,
    believed,
    is_clone,
)
from kakeya_fleet.fleet.membership.record import Record, version_of
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.strangers import Strangers

MAX_NODES = 10_000


def _as_it_is(card: Card, _host: str) -> Card:
    return card


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What became of a batch.

    `merged` are node ids with a new card, `skipped` (index in the batch, rule),
    `clones` node ids that two processes announce, `own` cards signed by this
    node's own key that this process did not make and that are not its past, `displaced`
    node ids that made way for newcomers.
    """

    merged: tuple[str, ...]
    skipped: tuple[tuple[int, str], ...]
    clones: tuple[str, ...]
    own: tuple[SignedCard, ...]
    displaced: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RumourResult:
    """What became of rumours.

    `merged` are node ids whose liveness rose, `skipped` (index, rule);
    `accused` tells that one calls this node's present incarnation not alive.
    """

    merged: tuple[str, ...]
    skipped: tuple[tuple[int, str], ...]
    accused: bool


class Registry:
    """The registers of all known nodes, this one's included; at most `limit`.

    What is merged of what others send follows `MergeRules`. `now` is always
    seconds on a monotonic clock.
    """

    def __init__(
        self,
        own: SignedCard,
        verify: Verify,
        *,
        now: float,
        limit: int = MAX_NODES,
        usable: Usable = _as_it_is,
    ) -> None:
        self._rules = MergeRules(verify, usable)
        self._strangers = Strangers()
        self._limit = limit
        self._own_id = own.card.node_id
        self._records: dict[str, Record] = {}
        self._ids_by_key: defaultdict[int, set[str]] = defaultdict(set)
        self._keys: Sequence[int] | None = None
        self._root: bytes | None = None
        self._live_count: int | None = None
        self.refused_count = 0
        """Cards for which there was no room, since the start."""
        self._put(own, version_of(own), now)

    @property
    def own(self) -> SignedCard:
        """The card of this node itself."""
        return self._records[self._own_id].signed

    @property
    def own_id(self) -> str:
        """The id of this node itself."""
        return self._own_id

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._records

    def nodes(self) -> Iterator[str]:
        """Ids of all known nodes, tombstones included."""
        return iter(self._records)

    def record(self, node_id: str) -> Record:
        """The node's registers. Raises `NodeNotFound`."""
        record = self._records.get(node_id)
        if record is None:
            raise NodeNotFound(f"no node {node_id!r} is known", node_id=node_id)
        return record

    def card(self, node_id: str) -> Card:
        """The node's card, with what of it may be called. Raises `NodeNotFound`."""
        return self.record(node_id).card

    def is_stranger(self, node_id: str) -> bool:
        """Whether the node never answered this one."""
        return node_id in self._strangers

    def introducer(self, node_id: str) -> str:
        """The host that brought the card of a stranger; empty for all others."""
        return self._strangers.introducer(node_id)

    def reached(self, node_id: str, now: float) -> None:
        """Notes that the node, if it is known, answered a call of this one."""
        self._strangers.discard(node_id)
        self.saw(node_id, now)

    def liveness(self, node_id: str) -> Liveness:
        """The node's liveness. Raises `NodeNotFound`."""
        return self.record(node_id).liveness

    def live_count(self) -> int:
        """Nodes that are ALIVE or SUSPECT, this one included."""
        if self._live_count is None:
            self._live_count = sum(
                not record.liveness.is_tombstone for record in self._records.values()
            )
        return self._live_count

    def saw(self, node_id: str, now: float) -> None:
        """Notes a sign of life of the node, when it is known."""
        if node_id in self._records:
            self._records[node_id].seen_at = now

    def replace_own(self, signed: SignedCard, now: float) -> bool:
        """Takes a new card of this node itself; whether it was newer.

        Raises `ValueError` for another node's card.
        """
        if signed.card.node_id != self._own_id:
            raise ValueError(f"the card of {signed.card.node_id} is not this node's own")
        version = version_of(signed)
        is_newer = version > self._records[self._own_id].version
        if is_newer:
            self._put(signed, version, now)
        return is_newer

    def leave(self, signature: bytes, now: float) -> None:
        """Marks this node as LEFT, with its signature of `left_message`."""
        self._turn(self._records[self._own_id], Liveness.LEFT, signature, now)

    def merge_cards(
        self,
        batch: Sequence[ReceivedCard],
        *,
        now: float,
        now_unix: float,
        source: Source = UNKNOWN_SOURCE,
    ) -> MergeResult:
        """Merges what follows the rules, and names the rule for the rest.

        Merging is a join as long as there is room. In a full registry newcomers take the
        places of `Strangers`, whom `displaced` names.
        """
        merged: list[str] = []
        displaced: list[str] = []
        skipped: list[tuple[int, str]] = []
        clones: list[str] = []
        own: list[SignedCard] = []
        for index, received in enumerate(batch):
            try:
                if isinstance(received, CardRejected):
                    raise received
                held = self._records.get(received.card.node_id)
                fleet_name = self.own.card.fleet_name
                version = self._rules.checked_version(received, held, fleet_name, now_unix)
                usable = received.card
                if version is not None and usable.node_id != self._own_id:
                    usable = self._rules.usable_card(received.card, source)
                    displaced += self._make_room(received.card.node_id, source)
            except CardRejected as rejected:
                skipped.append((index, rejected.rule))
                continue
            if version is None:
                continue
            node_id = received.card.node_id
            if node_id == self._own_id:
                own.append(received)
                continue
            if held is not None and is_clone(held, received):
                clones.append(node_id)
            if held is None or version > held.version:
                self._put(received, version, now, usable, source.host)
                merged.append(node_id)
                if held is None:
                    self._strangers.add(node_id, source.host)
        gone = tuple(node_id for node_id in displaced if node_id not in self._records)
        return MergeResult(
            tuple(node_id for node_id in merged if node_id in self._records),
            tuple(skipped),
            tuple(clones),
            tuple(own),
            gone,
        )

    def look_again(self, usable: Usable) -> tuple[str, ...]:
        """Takes of every card what may be called now; ids of nodes of which it is something else.

        A card of which nothing may be called now is left as it is.
        """
        changed = []
        for node_id, record in self._records.items():
            if node_id == self._own_id:
                continue
            card = usable(record.signed.card, record.host)
            if card is not None and card != record.card:
                record.card = card
                changed.append(node_id)
        return tuple(changed)

    def declare(self, node_id: str, incarnation: int, liveness: Liveness, now: float) -> bool:
        """Takes what this node itself found; whether it changed the node's liveness."""
        record = self._records[node_id]
        rises = record.rises_to(incarnation, liveness)
        if rises:
            self._turn(record, liveness, b"", now)
        return rises

    def merge_rumours(self, batch: Sequence[Rumour], now: float) -> RumourResult:
        """Merges what others say of incarnations whose cards are held: SUSPECT at most.

        LEFT is what the node says of itself. The cap keeps the order of the ranks, so that
        registers stay maxima and merging a join.
        """
        merged: list[str] = []
        skipped: list[tuple[int, str]] = []
        accused = False
        for index, rumour in enumerate(batch):
            record = self._records.get(rumour.node_id)
            if record is None:
                skipped.append((index, RumourRule.UNKNOWN_NODE.value))
                continue
            rule = self._rules.broken_by(rumour, record)
            if rule is not None:
                skipped.append((index, rule.value))
                continue
            liveness = believed(rumour.liveness)
            if record.rises_to(rumour.incarnation, liveness):
                if rumour.node_id == self._own_id:
                    accused = True
                    continue
                self._turn(record, liveness, rumour.signature, now)
                merged.append(rumour.node_id)
        return RumourResult(tuple(merged), tuple(skipped), accused)

    def forget_expired(self, now: float, settings: MembershipSettings) -> tuple[str, ...]:
        """Drops tombstones that are old enough, and cards whose `ttl_seconds` are over; their ids.

        A card's time begins with the last sign of life, and is no shorter than two passes
        of the round-robin, in which a node that lives is called.
        """
        passes_seconds = 2 * len(self._records) * settings.period_seconds
        expired = []
        for node_id, record in self._records.items():
            if record.liveness.is_tombstone:
                is_over = now - record.liveness_at >= (
                    settings.stranger_tombstone_seconds
                    if node_id in self._strangers
                    else settings.tombstone_seconds
                )
            else:
                is_over = now - record.seen_at >= max(record.card.ttl_seconds, passes_seconds)
            if is_over and node_id != self._own_id:
                expired.append(node_id)
        for node_id in expired:
            self._forget(node_id)
        return tuple(expired)

    def put_out(self, node_ids: Collection[str]) -> tuple[str, ...]:
        """Drops nodes that are members no more; the ids of those that were known."""
        known = tuple(sorted((self._records.keys() & set(node_ids)) - {self._own_id}))
        for node_id in known:
            self._forget(node_id)
        return known

    def _forget(self, node_id: str) -> None:
        del self._records[node_id]
        self._strangers.discard(node_id)
        key = node_key(node_id)
        self._ids_by_key[key].discard(node_id)
        if not self._ids_by_key[key]:
            del self._ids_by_key[key]
            self._keys = None
        self._forget_summaries()

    def root_hash(self) -> bytes:
        """SHA-256 over the registers of ALIVE and SUSPECT nodes, by node id."""
        if self._root is None:
            lines = sorted(
                record.root_line
                for record in self._records.values()
                if not record.liveness.is_tombstone
            )
            self._root = hashlib.sha256(b"".join(lines)).digest()
        return self._root

    def records(self) -> Iterator[Record]:
        """The registers of all known nodes."""
        return iter(self._records.values())

    def digest_part(self, first_key: int) -> DigestPart:
        """A line for every known node, tombstones included, from the key `first_key` on.

        Of as many whole keys as a message has lines for. O(lines), not O(N).
        """
        keys = self._ordered_keys()
        lines: list[DigestEntry] = []
        for key in islice(keys, bisect_left(keys, first_key), None):
            entries = [record.entry for record in self.records_under(key)]
            if lines and len(lines) + len(entries) > MAX_DIGEST_LINES:
                return DigestPart(tuple(lines), first_key, key - 1)
            lines += entries
        return DigestPart(tuple(lines), first_key)

    def records_between(self, first_key: int, last_key: int) -> Iterator[Record]:
        """The registers of the nodes whose keys are in that range, both ends included."""
        keys = self._ordered_keys()
        for key in keys[bisect_left(keys, first_key) : bisect_right(keys, last_key)]:
            yield from self.records_under(key)

    def records_under(self, key: int) -> list[Record]:
        """The registers of the nodes whose ids begin with the key: almost always one."""
        return [self._records[node_id] for node_id in self._ids_by_key.get(key, ())]

    def _ordered_keys(self) -> Sequence[int]:
        if self._keys is None:
            self._keys = sorted(self._ids_by_key)
        return self._keys

    def _make_room(self, node_id: str, source: Source) -> tuple[str, ...]:
        """Displaces a stranger for a newcomer where the registry is full."""
        if node_id in self._records or len(self._records) < self._limit:
            return ()
        leaving = self._strangers.displaced_by(source.host, is_itself=source.node_id == node_id)
        if leaving is None:
            self.refused_count += 1
            raise CardRejected(CardRule.REGISTRY_FULL, f"{self._limit} nodes are known already")
        self._forget(leaving)
        return (leaving,)

    def _put(
        self,
        signed: SignedCard,
        version: Version,
        now: float,
        usable: Card | None = None,
        host: str = "",
    ) -> None:
        card = signed.card if usable is None else usable
        node_id = signed.card.node_id
        held = self._records.get(node_id)
        if held is not None and held.version.incarnation == version.incarnation:
            held.renew(signed, version, now, card, host)
        else:
            self._records[node_id] = Record(signed, version, now, card, host)
            self._strangers.lives(node_id)
            self._note_key(node_id)
        self._forget_summaries()

    def _note_key(self, node_id: str) -> None:
        key = node_key(node_id)
        if key not in self._ids_by_key:
            self._keys = None
        self._ids_by_key[key].add(node_id)

    def _turn(self, record: Record, liveness: Liveness, signature: bytes, now: float) -> None:
        record.turn(liveness, signature, now)
        if liveness.is_tombstone:
            self._strangers.died(record.card.node_id)
        self._forget_summaries()

    def _forget_summaries(self) -> None:
        self._root = None
        self._live_count = None
