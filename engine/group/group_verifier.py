"""A verifier that a group of ranks computes together, as one of this engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from kakeya_fleet.engine.contracts.cache import CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Output, VerifierInfo
from kakeya_fleet.engine.errors import KvStrategyUnsupported, WeightsMismatch
from kakeya_fleet.engine.group.channel import RankChannel
from kakeya_fleet.engine.group.commands import Command
from kakeya_fleet.engine.group.conversation import Conversation
from kakeya_fleet.engine.group.fields import (
    Header,
    Json,
    MalformedMessage,
    integer,
    integers,
    section,
    sections,
)
from kakeya_fleet.engine.group.messages import FloatArray, Message
from kakeya_fleet.engine.group.mirror import GroupCache, Mirror
from kakeya_fleet.engine.group.mirrored_pool import MirroredPool
from kakeya_fleet.engine.group.values import check_kind, info_from_header, spec_to_header


class GroupVerifier:
    """See `engine.contracts.verifier.Verifier`. Every rank runs every command on its own part.

    All bytes are those of rank 0's part: `info.kv_bytes_per_token`, the pool and
    its budget, which every rank keeps to. Besides what the contract names, every
    call that asks the ranks raises `GroupLost` once one of them is lost.
    """

    def __init__(self, conversation: Conversation, mirror: Mirror, described: Header) -> None:
        """The ranks' verifier that they `described`; see `of_ranks`."""
        self._conversation = conversation
        self._mirror = mirror
        self._number = integer(described, "number")
        self._info = info_from_header(section(described, "info"))
        self._row_counts = tuple(integers(described, "row_counts"))
        self._thread_count = integer(described, "thread_count")
        self._pool = mirror.pool(self._number)

    @classmethod
    def of_ranks(
        cls,
        channels: Sequence[RankChannel],
        *,
        answer_seconds: float,
        first_answer_seconds: float | None = None,
    ) -> GroupVerifier:
        """What the ranks behind `channels` have loaded.

        No answer of a rank may take longer than `answer_seconds`, and none of those
        that this waits for, which take no time, than `first_answer_seconds`. Raises
        `GroupLost`, and `WeightsMismatch` when they have not loaded the same.
        """
        conversation = Conversation(
            channels,
            answer_seconds=answer_seconds if first_answer_seconds is None else first_answer_seconds,
        )
        mirror = Mirror(conversation)
        try:
            described = [
                section(message.header, "verifier")
                for message in mirror.run_on_all(Command.INFO, verifier=0)
            ]
            _check_same([info_from_header(section(each, "info")) for each in described])
            verifier = cls(conversation, mirror, described[0])
            shared = [set(integers(each, "row_counts")) for each in described]
            verifier._thread_count = _common([integer(each, "thread_count") for each in described])
        except MalformedMessage as error:
            conversation.end(str(error))
            conversation.check()
            raise
        common = set.intersection(*shared)
        if common != shared[0]:
            # Processors of several kinds; refused by name when nothing is left.
            verifier.use_row_counts(sorted(common))
        conversation.wait_for_answers(answer_seconds)
        return verifier

    @property
    def info(self) -> VerifierInfo:
        """What it is; bytes are those of rank 0's part."""
        return self._info

    @property
    def pool(self) -> MirroredPool:
        """A picture of rank 0's pool, with the budget of every rank's."""
        return self._pool

    @property
    def row_counts(self) -> tuple[int, ...]:
        """Ascending: a forward has as many rows as the smallest that holds its tokens."""
        return self._row_counts

    @property
    def thread_count(self) -> int:
        """Threads that share a forward of each rank; 0 when their numbers differ."""
        return self._thread_count

    @property
    def rank_count(self) -> int:
        """Ranks that compute it."""
        return self._mirror.rank_count

    @property
    def lost(self) -> str:
        """Why the group is lost, a sentence; empty while it is not."""
        return self._conversation.lost

    def end(self, reason: str) -> None:
        """The group is lost for this reason, unless it was before. Any thread may call."""
        self._conversation.end(reason)

    def use_row_counts(self, row_counts: Sequence[int]) -> None:
        """Restricts forwards to these, some of those loaded with. Raises `BadParameters`."""
        counts: list[Json] = list(row_counts)
        answer = self._mirror.run(Command.USE_ROW_COUNTS, verifier=self._number, row_counts=counts)
        with self._conversation.making_sense():
            self._row_counts = tuple(integers(answer.header, "row_counts"))

    def shallow(self) -> GroupVerifier:
        """The same shapes in as few layers as have every kind of them."""
        answer = self._mirror.run(Command.SHALLOW, verifier=self._number)
        with self._conversation.making_sense():
            described = section(answer.header, "verifier")
            if integer(described, "number") == self._number:
                return self
            return GroupVerifier(self._conversation, self._mirror, described)

    def allocate(self, spec: CacheSpec, evicted: EvictedStore | None = None) -> GroupCache:
        """A new, empty cache; `KvStrategyUnsupported` for one that is `restored`."""
        check_kind(spec)
        if evicted is not None:
            _restores_nothing()
        return self._mirror.allocate(self._number, spec)

    def evicted_shape(self, spec: CacheSpec) -> EvictedShape:
        """Raises `KvStrategyUnsupported`: a group restores nothing."""
        check_kind(spec)
        _restores_nothing()

    def bytes_needed(self, spec: CacheSpec) -> int:
        """`memory_bytes` that `allocate(spec)` would have, without allocating."""
        answer = self._mirror.run(
            Command.BYTES_NEEDED, verifier=self._number, spec=spec_to_header(spec)
        )
        with self._conversation.making_sense():
            return integer(answer.header, "bytes")

    def forward(
        self, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        """`forward_batch` of one feed without taps; its logits."""
        return self.forward_batch([Feed(cache, token_ids, want_logits)])[0].logits

    def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
        """Runs the tokens of all feeds in one forward; see the contract for errors."""
        caches = [self._own(feed.cache) for feed in feeds]
        asked: list[Json] = [
            {
                "cache": cache.number,
                "ids": [int(token_id) for token_id in feed.token_ids],
                "logits": feed.want_logits,
                "taps": list(feed.taps),
            }
            for cache, feed in zip(caches, feeds, strict=True)
        ]
        starts = [cache.length for cache in caches]
        answer = self._mirror.run(Command.FORWARD, verifier=self._number, feeds=asked)
        for cache, start in zip(caches, starts, strict=True):
            cache.started_at(start)
        return self._outputs(answer, feeds)

    def _outputs(self, answer: Message, feeds: Sequence[Feed]) -> list[Output]:
        with self._conversation.making_sense():
            places = sections(answer.header, "outputs")
            if len(places) != len(feeds):
                raise MalformedMessage(f"{len(places)} outputs for {len(feeds)} feeds")
            return [
                self._output(answer, place, feed) for place, feed in zip(places, feeds, strict=True)
            ]

    def _output(self, answer: Message, place: Header, feed: Feed) -> Output:
        count = len(feed.token_ids)
        logits = (count, self._info.vocabulary_size) if feed.want_logits else None
        features = (count, len(feed.taps), self._info.hidden_size) if feed.taps else None
        return Output(
            _array(answer, place, "logits", logits), _array(answer, place, "features", features)
        )

    def _own(self, cache: KvCache) -> GroupCache:
        if not isinstance(cache, GroupCache) or cache.mirror is not self._mirror:
            raise TypeError(f"{type(cache).__name__} is a cache of another verifier")
        cache.check_alive()
        return cache


def _array(
    answer: Message, place: Header, name: str, shape: tuple[int, ...] | None
) -> FloatArray | None:
    """The array that `name` says, which must have `shape`; None for none."""
    if place.get(name) is None:
        if shape is not None:
            raise MalformedMessage(f"there are no {name}")
        return None
    index = integer(place, name)
    if not 0 <= index < len(answer.arrays):
        raise MalformedMessage(f"there is no array {index}")
    if answer.arrays[index].shape != shape:
        raise MalformedMessage(f"{name} have shape {answer.arrays[index].shape}, not {shape}")
    return answer.arrays[index]


def _common(numbers: Sequence[int]) -> int:
    """The number that all are; 0 when they differ."""
    return numbers[0] if len(set(numbers)) == 1 else 0


def _check_same(infos: Sequence[VerifierInfo]) -> None:
    """Raises `WeightsMismatch` unless every rank has a part of the same model."""
    for rank, info in enumerate(infos):
        if info != infos[0]:
            raise WeightsMismatch(
                f"rank {rank} has loaded {_named(info)}, rank 0 {_named(infos[0])}: every host"
                " needs the same model, and the same version of this program",
                rank=str(rank),
            )


def _named(info: VerifierInfo) -> str:
    return f"{info.model_id} ({info.backend} {info.dtype}, weights {info.weights_digest[:12]})"


def _restores_nothing() -> NoReturn:
    raise KvStrategyUnsupported("a verifier that a group of ranks serves restores nothing yet")
