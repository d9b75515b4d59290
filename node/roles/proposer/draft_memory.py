"""What a draft stream may keep: its history, and proposals that wait for their blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kakeya.v1 import proposer_pb2 as wire
from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.node.admission.allowance import Allowance
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.holding import Holding, held_by
from kakeya_fleet.node.admission.limits import DraftLimits
from kakeya_fleet.node.rpc.refusals import TooManyStreams

KEPT_ID_BYTES = 40
"""A token id of a history: a Python integer, and its place in a list."""
WAITING_ID_BYTES = 4
"""One of a message."""
MESSAGE_BYTES = 1024
"""A message besides its ids."""
MAX_ASSUMED = MAX_BLOCK_SIZE + 1
"""Tokens that may follow the history unverified: a block, and the verifier's own behind it."""


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """One stream's. `history` and `waiting` count bytes of all streams together."""

    limits: DraftLimits
    history: Holding
    waiting: Holding

    def keep(self, known_length: int, count: int, field: str) -> int:
        """Keeps `count` ids more behind `known_length`, and gives the new length.

        Raises `BadParameters` beyond what a stream may have, `TooManyStreams` beyond what
        all may.
        """
        length, most = known_length + count, self.limits.history_tokens
        if length > most:
            raise BadParameters(
                f"the history would have {length} ids; a stream holds {most}", field=field
            )
        self.history.take(KEPT_ID_BYTES * count)
        return length

    def await_block(self, asked: wire.DraftProposal | wire.DraftHistory) -> None:
        """What was asked waits. Raises `BadParameters` and `TooManyStreams`."""
        if isinstance(asked, wire.DraftProposal) and len(asked.assumed_token_ids) > MAX_ASSUMED:
            raise BadParameters(
                f"{len(asked.assumed_token_ids)} assumed ids; a block has {MAX_ASSUMED} at most",
                field="assumed_token_ids",
            )
        self.waiting.take(_waiting_bytes(asked))

    def answered(self, asked: wire.DraftProposal | wire.DraftHistory) -> None:
        """It waits no more."""
        self.waiting.give_back(_waiting_bytes(asked))


class DraftMemories:
    """Those of all streams of one proposer role."""

    def __init__(self, allowances: Allowances) -> None:
        self.limits = allowances.limits.drafts
        self._history: Allowance = allowances.share("drafts.history_bytes", TooManyStreams)
        self._waiting: Allowance = allowances.share("drafts.waiting_bytes", TooManyStreams)

    @contextmanager
    def of(self, caller: Caller) -> Iterator[DraftMemory]:
        """For one stream or call of `caller`, for as long as the context lasts."""
        with held_by(self._history, caller) as history, held_by(self._waiting, caller) as waiting:
            yield DraftMemory(self.limits, history, waiting)


def _waiting_bytes(asked: wire.DraftProposal | wire.DraftHistory) -> int:
    ids = WAITING_ID_BYTES * len(asked.committed_token_ids)
    if isinstance(asked, wire.DraftProposal):
        return MESSAGE_BYTES + ids + WAITING_ID_BYTES * len(asked.assumed_token_ids)
    return MESSAGE_BYTES + ids + sum(map(len, asked.keys_values))
