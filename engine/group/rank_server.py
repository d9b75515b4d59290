"""One rank's answers: commands of the leader, run on this rank's part of the verifier."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping

from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.errors import BadParameters, EngineError
from kakeya_fleet.engine.group.commands import Command, Note
from kakeya_fleet.engine.group.fields import (
    Header,
    Json,
    MalformedMessage,
    flag,
    integer,
    integers,
    items,
    member,
    section,
    sections,
)
from kakeya_fleet.engine.group.messages import FloatArray, Message
from kakeya_fleet.engine.group.rank_state import HeldCache, RankState, Touched
from kakeya_fleet.engine.group.values import error_to_header, info_to_header, spec_from_header

Answer = tuple[dict[str, Json], list[FloatArray]]


class RankServer:
    """Runs commands on `verifier`, in the order in which they come.

    The rank that `leads` sends the numbers back; all others acknowledge, with a
    checksum of their state, in which all ranks agree.
    """

    def __init__(self, verifier: Verifier, *, leads: bool) -> None:
        self._verifiers = [verifier]
        self._leads = leads
        self._caches: dict[int, HeldCache] = {}
        self._state = RankState()
        self._commands: Mapping[Command, Callable[[Header, Touched], Answer]] = {
            Command.INFO: self._info,
            Command.SHALLOW: self._shallow,
            Command.USE_ROW_COUNTS: self._use_row_counts,
            Command.BYTES_NEEDED: self._bytes_needed,
            Command.ALLOCATE: self._allocate,
            Command.FORK: self._fork,
            Command.FORK_BYTES: self._fork_bytes,
            Command.FILL: self._fill,
            Command.GROW: self._grow,
            Command.FORWARD: self._forward,
        }

    def answer(self, message: Message) -> Message:
        """What came of a command: its results, or the error that left everything as it was.

        What this raises is a fault of the rank, or of the leader: the rank cannot
        go on, as nobody knows what the others did. `MalformedMessage` among them.
        """
        header = message.header
        touched = Touched()
        for note in items(header, "before"):
            self._note(note, touched)
        command = member(header, "do", Command)
        arrays: list[FloatArray] = []
        try:
            results, arrays = self._commands[command](header, touched)
        except (EngineError, ValueError) as error:
            results = {"error": error_to_header(error)}
        state = self._state.report(self._verifiers, self._caches, touched)
        checked = json.dumps([state, results.get("error")], sort_keys=True).encode()
        own: dict[str, Json] = {"checksum": zlib.crc32(checked)}
        if self._leads or command is Command.INFO:
            return Message({**own, **results, "state": state}, tuple(arrays))
        return Message(own)

    def _note(self, note: Json, touched: Touched) -> None:
        """What the leader has done already, to its own picture of this."""
        if not isinstance(note, list) or len(note) < len(("kind", "number")):
            raise MalformedMessage(f"{note!r} is no note")
        first, *rest = integers({"note": note[1:]}, "note")
        match member({"note": note[0]}, "note", Note):
            case Note.RELEASE:
                held = self._caches.pop(first)
                touched.add(first, held)
                held.cache.release()
            case Note.TRUNCATE:
                held = self._caches[first]
                touched.add(first, held)
                held.cache.truncate(rest[0])
            case Note.BUDGET:
                self._verifiers[first].pool.budget_bytes = rest[0] if rest else None

    def _info(self, _header: Header, _touched: Touched) -> Answer:
        return {"verifier": self._described(0)}, []

    def _shallow(self, header: Header, _touched: Touched) -> Answer:
        shallow = self._of(header).shallow()
        if not any(known is shallow for known in self._verifiers):
            self._verifiers.append(shallow)
        number = next(i for i, known in enumerate(self._verifiers) if known is shallow)
        return {"verifier": self._described(number)}, []

    def _described(self, number: int) -> Header:
        verifier = self._verifiers[number]
        counts: list[Json] = list(verifier.row_counts)
        return {
            "number": number,
            "info": info_to_header(verifier.info),
            "row_counts": counts,
            "thread_count": verifier.thread_count,
        }

    def _use_row_counts(self, header: Header, _touched: Touched) -> Answer:
        verifier = self._of(header)
        verifier.use_row_counts(integers(header, "row_counts"))
        return {"row_counts": list(verifier.row_counts)}, []

    def _bytes_needed(self, header: Header, _touched: Touched) -> Answer:
        spec = spec_from_header(section(header, "spec"))
        return {"bytes": self._of(header).bytes_needed(spec)}, []

    def _allocate(self, header: Header, touched: Touched) -> Answer:
        spec = spec_from_header(section(header, "spec"))
        number = integer(header, "verifier")
        self._keep(header, HeldCache(self._of(header).allocate(spec), number), touched)
        return {}, []

    def _fork(self, header: Header, touched: Touched) -> Answer:
        origin = self._touch(integer(header, "cache"), touched)
        forked = HeldCache(origin.cache.fork(integer(header, "length")), origin.verifier)
        self._keep(header, forked, touched)
        return {}, []

    def _fork_bytes(self, header: Header, touched: Touched) -> Answer:
        origin = self._touch(integer(header, "cache"), touched)
        return {"bytes": origin.cache.fork_bytes(integer(header, "length"))}, []

    def _fill(self, header: Header, touched: Touched) -> Answer:
        held = self._touch(integer(header, "cache"), touched)
        held.cache.fill(integer(header, "count"), integer(header, "seed"))
        return {}, []

    def _grow(self, header: Header, touched: Touched) -> Answer:
        held = self._touch(integer(header, "cache"), touched)
        held.cache.grow(integer(header, "count"))
        return {}, []

    def _forward(self, header: Header, touched: Touched) -> Answer:
        feeds: list[Feed] = []
        for feed in sections(header, "feeds"):
            held = self._touch(integer(feed, "cache"), touched)
            if held.verifier != integer(header, "verifier"):
                raise BadParameters("a feed is of another verifier's cache")
            ids, taps = integers(feed, "ids"), tuple(integers(feed, "taps"))
            feeds.append(Feed(held.cache, ids, flag(feed, "logits"), taps))
        arrays: list[FloatArray] = []
        found = self._of(header).forward_batch(feeds)
        outputs: list[Json] = [_placed(output, arrays) for output in found]
        return {"outputs": outputs}, arrays

    def _of(self, header: Header) -> Verifier:
        number = integer(header, "verifier")
        if not 0 <= number < len(self._verifiers):
            raise MalformedMessage(f"there is no verifier {number}")
        return self._verifiers[number]

    def _touch(self, number: int, touched: Touched) -> HeldCache:
        if number not in self._caches:
            raise MalformedMessage(f"there is no cache {number}")
        touched.add(number, self._caches[number])
        return self._caches[number]

    def _keep(self, header: Header, held: HeldCache, touched: Touched) -> None:
        number = integer(header, "as")
        if number in self._caches:
            raise MalformedMessage(f"there is a cache {number} already")
        self._caches[number] = held
        touched.add(number, held)


def _placed(output: Output, arrays: list[FloatArray]) -> Json:
    """Where an output's arrays are among `arrays`, to which they are added."""
    places: dict[str, Json] = {}
    for name, array in (("logits", output.logits), ("features", output.features)):
        places[name] = None if array is None else len(arrays)
        if array is not None:
            arrays.append(array)
    return places
