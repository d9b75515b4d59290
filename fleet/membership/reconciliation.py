"""What two nodes still have to tell each other, from a digest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.digest import DigestEntry, DigestPart
from kakeya_fleet.fleet.membership.randomness import Randomness
from kakeya_fleet.fleet.membership.record import Record
from kakeya_fleet.fleet.membership.registry import Registry

MAX_CARDS_A_MESSAGE = 64
MAX_RUMOURS_A_MESSAGE = 256
MAX_WANTED_KEYS = 1024
# Half of the control plane's 1 MiB a message; the rest is for rumours and digest.
MAX_CARD_BYTES_A_MESSAGE = 512 * 1024


@dataclass(frozen=True, slots=True)
class Missing:
    """What a digest shows: cards and rumours to send, keys of registers to ask for."""

    cards: tuple[SignedCard, ...]
    rumours: tuple[Rumour, ...]
    wanted_node_keys: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.cards or self.rumours or self.wanted_node_keys)


def missing_from(registry: Registry, digest: DigestPart, rng: Randomness) -> Missing:
    """Compares with a part of another's digest; what exceeds a message is left to the next.

    The order is random, so that what the other refuses blocks nothing for ever.
    A tombstone is told to those who know the node, and asked for likewise.
    """
    theirs: defaultdict[int, list[DigestEntry]] = defaultdict(list)
    for entry in digest.lines:
        theirs[entry.node_key].append(entry)
    cards: list[Record] = []
    rumours: list[Record] = []
    # Most lines of a fleet that converges are equal, which is seen in one comparison.
    equal: set[DigestEntry] = set()
    for record in registry.records_between(digest.first_key, digest.last_key):
        mine = record.entry
        entries = theirs.get(mine.node_key, ())
        if mine in entries:
            equal.add(mine)
            if len(entries) == 1:
                continue
        if not entries and record.liveness.is_tombstone:
            continue
        if all(mine.card_order > entry.card_order for entry in entries):
            cards.append(record)
        if all(mine.liveness_order > entry.liveness_order for entry in entries):
            rumours.append(record)
    wanted = sorted(
        {
            entry.node_key
            for entry in digest.lines
            if entry not in equal and _is_wanted(entry, registry.records_under(entry.node_key))
        }
    )
    for unordered in (cards, rumours, wanted):
        rng.shuffle(unordered)
    return Missing(_cards(cards), _rumours(rumours), tuple(wanted[:MAX_WANTED_KEYS]))


def select(registry: Registry, wanted_node_keys: Iterable[int]) -> Missing:
    """Cards and rumours of the nodes under the keys, as far as a message holds."""
    records = [record for key in wanted_node_keys for record in registry.records_under(key)]
    return Missing(_cards(records), _rumours(records), ())


def _is_wanted(entry: DigestEntry, records: list[Record]) -> bool:
    """Whether none of this node's records under the line's key is as new."""
    if not records:
        return not entry.liveness.is_tombstone
    return all(
        entry.card_order > mine.card_order or entry.liveness_order > mine.liveness_order
        for mine in (record.entry for record in records)
    )


def _cards(records: list[Record]) -> tuple[SignedCard, ...]:
    cards: list[SignedCard] = []
    size = 0
    for record in records[:MAX_CARDS_A_MESSAGE]:
        size += len(record.signed.card_bytes)
        if size > MAX_CARD_BYTES_A_MESSAGE:
            break
        cards.append(record.signed)
    return tuple(cards)


def _rumours(records: list[Record]) -> tuple[Rumour, ...]:
    """What else than ALIVE is held of the nodes; a card itself says ALIVE."""
    rumours = [record.rumour for record in records if record.liveness is not Liveness.ALIVE]
    return tuple(rumours[:MAX_RUMOURS_A_MESSAGE])
