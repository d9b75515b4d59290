"""Registries of thousands of nodes that know each other: what they all hold is kept once.

10,000 registries of 10,000 records each would be 10^8 records. Here every node begins with the
same records, of which it keeps those alone that it changed. Its root hash is one over these, equal
for equal registers as the real one is, and its count of live nodes one of differences. The rules
stay those of `Registry` and `RoundRobin`: only where they keep their records differs, and a fleet
of either storage takes the same steps from the same seed.

The last sign of life of a node is not kept, so that such a fleet may run for `LONGEST_SECONDS`
only, before any card or tombstone is old enough to be forgotten.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from typing import Any

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.cards.signed_message import Verify
from kakeya_fleet.fleet.membership.digest import Version, node_key
from kakeya_fleet.fleet.membership.randomness import Randomness
from kakeya_fleet.fleet.membership.record import Record, version_of
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.round_robin import RoundRobin
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.state import Membership
from scripts.simulator.cards import TTL_SECONDS

LONGEST_SECONDS = min(TTL_SECONDS, MembershipSettings().stranger_tombstone_seconds)


class SharedFleet:
    """What all nodes of a fleet hold at its beginning, at virtual time 0."""

    def __init__(self, cards: Sequence[SignedCard], verify: Verify) -> None:
        self.verify = verify
        self.records = [Record(each, version_of(each), 0.0, each.card) for each in cards]
        self.ids = [each.card.node_id for each in cards]
        self.id_set = frozenset(self.ids)
        self.positions = {node_id: position for position, node_id in enumerate(self.ids)}
        self.ids_by_key: defaultdict[int, list[str]] = defaultdict(list)
        for node_id in self.ids:
            self.ids_by_key[node_key(node_id)].append(node_id)
        self.keys = sorted(self.ids_by_key)

    def membership(
        self, own: SignedCard, settings: MembershipSettings, rng: Randomness
    ) -> Membership:
        """The state of one of the nodes: all others have answered it, and nothing is news."""
        peers = SharedRoundRobin(self, own.card.node_id, rng)
        state = Membership(SharedRegistry(self, own), settings=settings, peers=peers)
        state.hot_cards.cool(own.card.node_id)
        return state


class ChangedRecords(dict[str, Record]):
    """The records that a node changed, which are its items, over those that all share.

    Ordered as in a registry of its own: the node itself, the others, newcomers.
    """

    def __init__(self, common: SharedFleet, own_id: str) -> None:
        super().__init__()
        self._common = common
        self._own_position = common.positions[own_id]

    def __missing__(self, node_id: str) -> Record:
        return self._common.records[self._common.positions[node_id]]

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._common.id_set or super().__contains__(node_id)

    def __len__(self) -> int:
        return len(self._common.ids) + sum(each not in self._common.id_set for each in self.own())

    def get(self, node_id: str, default: Any = None) -> Any:
        """The record that the node holds, its own or the shared one."""
        position = self._common.positions.get(node_id)
        shared = default if position is None else self._common.records[position]
        return super().get(node_id, shared)

    def __iter__(self) -> Iterator[str]:
        ids = self._common.ids.copy()
        ids.insert(0, ids.pop(self._own_position))
        ids += [node_id for node_id in self.own() if node_id not in self._common.id_set]
        return iter(ids)

    def values(self) -> list[Record]:  # type: ignore[override]  # a view is not asked for
        """All records that the node holds."""
        records = self._common.records.copy()
        newcomers = []
        for node_id, record in super().items():
            position = self._common.positions.get(node_id)
            if position is None:
                newcomers.append(record)
            else:
                records[position] = record
        records.insert(0, records.pop(self._own_position))
        return records + newcomers

    def __delitem__(self, node_id: str) -> None:
        raise NotImplementedError("a shared registry forgets nobody")

    def own(self) -> list[str]:
        """Ids of the changed records."""
        return list(super().keys())

    def differences(self) -> Iterator[tuple[Record, bool]]:
        """Its own records that say another thing than the shared ones, and whether they are new."""
        for node_id, record in super().items():
            position = self._common.positions.get(node_id)
            if position is None or record.root_line != self._common.records[position].root_line:
                yield record, position is None


class SharedRegistry(Registry):
    """A registry that copies a record before it changes it."""

    def __init__(self, common: SharedFleet, own: SignedCard) -> None:
        super().__init__(own, common.verify, now=0.0)
        self._common = common
        self._changed = ChangedRecords(common, own.card.node_id)
        self._records = self._changed

    def root_hash(self) -> bytes:
        """See `root_of`."""
        if self._root is None:
            self._root = root_of(self._changed.differences())
        return self._root

    def live_count(self) -> int:
        """As `Registry.live_count`."""
        if self._live_count is None:
            gone = sum(record.liveness.is_tombstone for record, _ in self._changed.differences())
            self._live_count = len(self._records) - gone
        return self._live_count

    def saw(self, node_id: str, now: float) -> None:
        """Not kept: see the module."""

    def forget_expired(self, now: float, _settings: MembershipSettings) -> tuple[str, ...]:
        """Nobody: see the module. Raises `ValueError` once somebody might have to be forgotten."""
        if now > LONGEST_SECONDS:
            raise ValueError(f"a fleet of shared storage runs for {LONGEST_SECONDS:.0f} s at most")
        return ()

    def records_under(self, key: int) -> list[Record]:
        """As `Registry.records_under`."""
        ids = (*self._common.ids_by_key.get(key, ()), *self._ids_by_key.get(key, ()))
        return [self._records[node_id] for node_id in dict.fromkeys(ids)]

    def _ordered_keys(self) -> Sequence[int]:
        if not self._ids_by_key.keys() - self._common.ids_by_key.keys():
            return self._common.keys
        return sorted(self._common.ids_by_key.keys() | self._ids_by_key.keys())

    def _put(
        self,
        signed: SignedCard,
        version: Version,
        now: float,
        usable: Any = None,
        host: str = "",
    ) -> None:
        node_id = signed.card.node_id
        if node_id in self._records:
            self._copied(self._records[node_id])
        super()._put(signed, version, now, usable, host)

    def _turn(self, record: Record, liveness: Liveness, signature: bytes, now: float) -> None:
        super()._turn(self._copied(record), liveness, signature, now)

    def _copied(self, record: Record) -> Record:
        """The node's own record of a node that it may share with all others so far."""
        node_id = record.signed.card.node_id
        if record is self._common_record(node_id):
            self._records[node_id] = copy(record)
        return self._records[node_id]

    def _common_record(self, node_id: str) -> Record | None:
        position = self._common.positions.get(node_id)
        return None if position is None else self._common.records[position]


class LaterRegistry(Registry):
    """Of a node that starts among those that share: it knows nobody, and shares nothing."""

    def __init__(self, common: SharedFleet, own: SignedCard, *, now: float) -> None:
        super().__init__(own, common.verify, now=now)
        self._common = common

    def root_hash(self) -> bytes:
        """See `root_of`."""
        common = self._common
        held = ChangedRecords(common, self.own_id)
        held.update(self._records)
        unknown = (record for record in common.records if record.card.node_id not in self._records)
        return root_of(itertools.chain(held.differences(), ((each, None) for each in unknown)))


def root_of(differences: Iterable[tuple[Record, bool | None]]) -> bytes:
    """SHA-256 over what a registry holds of other registers than the shared ones.

    Equal where `Registry.root_hash` is: of a shared record that is a tombstone or is not known
    (None) its id stands there, of a new one that is a tombstone nothing.
    """
    lines = []
    for record, is_new in differences:
        if is_new is None or (record.liveness.is_tombstone and not is_new):
            lines.append(bytes.fromhex(record.card.node_id))
        elif not record.liveness.is_tombstone:
            lines.append(record.root_line)
    return hashlib.sha256(b"".join(sorted(lines))).digest()


class PresentIds(set[str]):
    """Ids that are present: all of the fleet but `absent`, and its own items."""

    def __init__(self, everybody: frozenset[str], absent: str) -> None:
        super().__init__()
        self._everybody = everybody
        self._absent = {absent}

    def __contains__(self, node_id: object) -> bool:
        if node_id in self._everybody:
            return node_id not in self._absent
        return super().__contains__(node_id)

    def add(self, node_id: str) -> None:
        """As `set.add`."""
        if node_id in self._everybody:
            self._absent.discard(node_id)
        else:
            super().add(node_id)

    def remove(self, node_id: str) -> None:
        """As `set.remove`."""
        if node_id in self._everybody:
            self._absent.add(node_id)
        else:
            super().remove(node_id)


class SharedRoundRobin(RoundRobin):
    """Visits everybody else, in an order of its own; who is in it is kept as a difference."""

    def __init__(self, common: SharedFleet, own_id: str, rng: Randomness) -> None:
        super().__init__()
        self._order = [node_id for node_id in common.ids if node_id != own_id]
        rng.shuffle(self._order)
        self._present = PresentIds(common.id_set, own_id)
