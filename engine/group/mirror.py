"""The leader's picture of what its ranks hold: the pools, the slabs and the caches.

A `GroupCache` is a cache of which every rank holds its heads' part.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Sequence
from typing import NoReturn

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import resident_count
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import KvStrategyUnsupported
from kakeya_fleet.engine.group.commands import Command, Note
from kakeya_fleet.engine.group.conversation import Answers, Conversation, refusal
from kakeya_fleet.engine.group.fields import (
    Header,
    Json,
    MalformedMessage,
    integer,
    integers,
    items,
    section,
    sections,
)
from kakeya_fleet.engine.group.messages import Message
from kakeya_fleet.engine.group.mirrored_pool import MirroredPool, MirroredSlabs, ToldSlab
from kakeya_fleet.engine.group.values import spec_to_header
from kakeya_fleet.engine.memory.slab_pool import Slab


class Mirror:
    """Runs commands, and keeps what their answers say of the ranks' memory.

    Commands come from the verifier's thread; releases and questions from any.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._caches: weakref.WeakValueDictionary[int, GroupCache] = weakref.WeakValueDictionary()
        self._released: dict[int, tuple[int, ...]] = {}
        self._pools: dict[int, MirroredPool] = {}
        self._slabs = MirroredSlabs(self._pools)

    def check(self) -> None:
        """Raises `GroupLost` once the group is lost."""
        self._conversation.check()

    @property
    def rank_count(self) -> int:
        """Ranks of the group."""
        return self._conversation.rank_count

    def pool(self, verifier: int) -> MirroredPool:
        """The pool of the ranks' `verifier`; there is one of each number."""
        if verifier not in self._pools:

            def told(budget_bytes: int | None) -> None:
                note: list[Json] = [Note.BUDGET.value, verifier]
                self._conversation.note(note if budget_bytes is None else [*note, budget_bytes])

            self._pools[verifier] = MirroredPool(told)
        return self._pools[verifier]

    def run(self, command: Command, /, **arguments: Json) -> Message:
        """What rank 0 answered, the ranks' state taken over.

        Raises `GroupLost`, and what the ranks refused the command with.
        """
        return self.run_on_all(command, **arguments)[0]

    def run_on_all(self, command: Command, /, **arguments: Json) -> list[Message]:
        """What every rank answered; see `run`."""
        answers = self._conversation.ask(command, **arguments)
        with self._conversation.making_sense():
            error = refusal(answers.first)
            self._take(section(answers.first.header, "state"), answers)
        if error is not None:
            raise error
        return answers.messages

    def allocate(self, verifier: int, spec: CacheSpec) -> GroupCache:
        """A new, empty cache; see `engine.contracts.verifier.Verifier.allocate` for errors."""
        cache = GroupCache(self, verifier, next(self._numbers), spec)
        return self._made(cache, Command.ALLOCATE, spec=spec_to_header(spec))

    def fork(self, origin: GroupCache, length: int) -> GroupCache:
        """See `engine.contracts.cache.KvCache.fork`."""
        origin.check_alive()
        forked = GroupCache(self, origin.verifier, next(self._numbers), origin.spec, length)
        return self._made(forked, Command.FORK, cache=origin.number, length=length)

    def fork_bytes(self, origin: GroupCache, length: int) -> int:
        """See `engine.contracts.cache.KvCache.fork_bytes`."""
        origin.check_alive()
        answer = self.run(Command.FORK_BYTES, cache=origin.number, length=length)
        with self._conversation.making_sense():
            return integer(answer.header, "bytes")

    def fill(self, cache: GroupCache, count: int, seed: int) -> None:
        """See `engine.contracts.cache.KvCache.fill`."""
        cache.check_alive()
        self.run(Command.FILL, cache=cache.number, count=count, seed=seed)
        cache.started_at(count)

    def grow(self, cache: GroupCache, count: int) -> None:
        """See `engine.contracts.cache.KvCache.grow`."""
        cache.check_alive()
        self.run(Command.GROW, cache=cache.number, count=count)

    def truncate(self, cache_number: int, length: int) -> None:
        """The cache keeps `length` positions, which is one of those that it can keep."""
        self._conversation.note([Note.TRUNCATE.value, cache_number, length])

    def release(self, cache_number: int, slab_numbers: tuple[int, ...]) -> None:
        """The cache gives its slabs back."""
        with self._lock:
            self._released[cache_number] = slab_numbers
            self._slabs.give_back(slab_numbers)
            self._conversation.note([Note.RELEASE.value, cache_number])

    def slabs(self, numbers: Sequence[int]) -> tuple[Slab[None], ...]:
        """The slabs of these numbers."""
        with self._lock:
            return self._slabs.of(numbers)

    def _made(self, cache: GroupCache, command: Command, /, **arguments: Json) -> GroupCache:
        self._caches[cache.number] = cache
        self.run(command, verifier=cache.verifier, **{"as": cache.number}, **arguments)
        return cache

    def _take(self, state: Header, answers: Answers) -> None:
        """Takes over the ranks' state behind a command."""
        pools = [_numbers(pool, 2) for pool in items(state, "pools")]
        changed = [ToldSlab(*_numbers(slab, 5)) for slab in items(state, "slabs")]
        done = {
            note[1]
            for note in answers.notes
            if isinstance(note, list) and note[0] == Note.RELEASE.value
        }
        with self._lock:
            for verifier, (held, reserved) in enumerate(pools):
                self.pool(verifier).mirror(held, reserved)
            self._slabs.tell(changed)
            for told in sections(state, "caches"):
                cache = self._caches.get(integer(told, "id"))
                if cache is not None:
                    cache.tell(told)
            # Those that were given back meanwhile still count at the ranks.
            for number, slabs in list(self._released.items()):
                if number in done:
                    del self._released[number]
                else:
                    self._slabs.give_back(slabs)


class GroupCache:
    """See `engine.contracts.cache.KvCache`. Bytes are those of rank 0's part."""

    def __init__(
        self, mirror: Mirror, verifier: int, number: int, spec: CacheSpec, start: int = 0
    ) -> None:
        """The cache `number` of the ranks' `verifier`, whose first `start` positions are final."""
        self._mirror = mirror
        self._verifier = verifier
        self._number = number
        self._spec = spec
        self._last_start = start
        self._length = start
        self._memory_bytes = 0
        self._freed_bytes = 0
        self._widest = 1
        self._forkable_from = 0
        self._reach = 0
        self._growth_bytes = 0
        self._slab_numbers: tuple[int, ...] = ()
        self._released = False

    @property
    def number(self) -> int:
        """Its number at the ranks."""
        return self._number

    @property
    def verifier(self) -> int:
        """The number of its verifier at the ranks."""
        return self._verifier

    @property
    def mirror(self) -> Mirror:
        """Of which group it is."""
        return self._mirror

    @property
    def spec(self) -> CacheSpec:
        """What was allocated."""
        return self._spec

    @property
    def length(self) -> int:
        """Positions written, provisional ones included: the next one's index."""
        return self._length

    @property
    def resident(self) -> int:
        """Positions below `length` that the next query can attend to."""
        if self._spec.kind is CacheKind.CONTIGUOUS:
            return self._length
        return resident_count(self._length, self._spec.sink, self._spec.window)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the tensors of rank 0's part; shared ones count too."""
        return self._memory_bytes

    @property
    def slabs(self) -> Sequence[Slab[None]]:
        """What it holds of the pools."""
        return () if self._released else self._mirror.slabs(self._slab_numbers)

    @property
    def freed_bytes(self) -> int:
        """Bytes that rank 0's pool gets back when this cache is released now."""
        return 0 if self._released else self._freed_bytes

    @property
    def evicted(self) -> None:
        """A group restores nothing."""
        return None

    @property
    def widest(self) -> int:
        """The most tokens of one forward into this cache."""
        return self._widest

    @property
    def forkable_from(self) -> int:
        """The shortest prefix whose keys and values are all still there."""
        return self._forkable_from

    @property
    def reach(self) -> int:
        """The positions below this have their memory."""
        return self._reach

    def keys_values(self, first: int, end: int) -> None:  # noqa: ARG002 no rank has all heads
        """In no one process."""
        return

    def take_keys_values(self, count: int, numbers: KeysValues) -> NoReturn:  # noqa: ARG002
        """Raises `KvStrategyUnsupported`."""
        raise KvStrategyUnsupported("a cache of a group of ranks takes no keys and values")

    def growth_bytes(self, count: int) -> int:
        """Bytes that the next `count` positions take from each rank's pool, of one segment at most.

        A forward has fewer tokens than a segment has slots: it never takes more.
        """
        return self._growth_bytes if self._length + count > self._reach else 0

    def grow(self, count: int) -> None:
        """Takes the memory of the next `count` positions at each rank."""
        if self.growth_bytes(count):
            self._mirror.grow(self, count)

    def truncate(self, length: int) -> None:
        """Keeps the first `length` positions; `ValueError` outside the last forward's range.

        The ranks do it before their next command. Raises `GroupLost`.
        """
        if not self._last_start <= length <= self._length:
            raise ValueError(
                f"cannot keep {length} positions: only {self._last_start} to {self._length}"
            )
        self._mirror.check()
        if length < self._length:
            self._length = length
            self._mirror.truncate(self._number, length)

    def fork(self, length: int) -> GroupCache:
        """A cache of the first `length` positions that shares what neither will change."""
        return self._mirror.fork(self, length)

    def fork_bytes(self, length: int) -> int:
        """Bytes that `fork(length)` takes or reserves from each rank's pool."""
        return self._mirror.fork_bytes(self, length)

    def fill(self, count: int, seed: int) -> None:
        """Makes an empty cache one of `count` positions with random keys and values."""
        self._mirror.fill(self, count, seed)

    def release(self) -> None:
        """Gives the memory back; the ranks do it before their next command. Any thread may call."""
        if not self._released:
            self._released = True
            self._mirror.release(self._number, self._slab_numbers)

    def started_at(self, start: int) -> None:
        """Positions below `start` are final from now on."""
        self._last_start = start

    def tell(self, state: Header) -> None:
        """Takes what the ranks said of it. Raises `MalformedMessage`, `GroupLost`."""
        length = integer(state, "length")
        self._length = length
        self._memory_bytes = integer(state, "memory_bytes")
        self._freed_bytes = integer(state, "freed_bytes")
        self._widest = integer(state, "widest")
        self._forkable_from = integer(state, "forkable_from")
        self._reach = integer(state, "reach")
        self._growth_bytes = integer(state, "growth_bytes")
        if "slabs" in state:
            self._slab_numbers = tuple(integers(state, "slabs"))

    def check_alive(self) -> None:
        """Raises `ValueError` once released."""
        if self._released:
            raise ValueError("a released cache was used")


def _numbers(value: Json, count: int) -> list[int]:
    found = value if isinstance(value, list) else []
    numbers = [number for number in found if isinstance(number, int)]
    if len(numbers) != count:
        raise MalformedMessage(f"{value!r} is not {count} numbers")
    return numbers
