"""Whatever becomes of an archive's bytes: the same tokens, and the cause is counted.

In flight each fault is found before a number is used. An archive that computes or keeps
something else is found by spot checks, named and left; what may have been wrong is said.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.contracts.evicted_store import EvictedKeysValues
from kakeya_fleet.node.roles.archive import data_connection, served_connection
from kakeya_fleet.node.roles.archive.archive_use import ArchiveUse, Attended
from kakeya_fleet.node.roles.archive.archives import Archive, Archives
from kakeya_fleet.node.roles.archive.data_frames import Frame, Kind, parts_of, send_parts
from kakeya_fleet.node.roles.settings import RestorerSettings, RoleSettings
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.breadth import wide

RESTORED = placement_pb2.KV_STRATEGY_RESTORED
FULL = placement_pb2.KV_STRATEGY_FULL
PROMPT = [(7 * index + index // 11) % 96 for index in range(180)]
MAX_TOKENS = 12
HEADER_BYTES, KIND_AT, NUMBER_AT = 48, 5, 16

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def around() -> AsyncIterator[Any]:
    async with nodes.Neighbourhood() as started:
        await started.start("archive", "archive=64MiB")
        yield started


async def _verifier(around: Any, name: str, checkpoint: Path, **settings: Any) -> Any:
    restorers = RestorerSettings(deadline=2.0, rebuild=2.0, audit_answers=2, **settings)
    role = RoleSettings(kv_budget_bytes=64 << 20, restorers=restorers)
    return await around.start(name, f"verifier={checkpoint}", settings=role)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def forgiving(around: Any, checkpoint: Path) -> Any:
    """A verifier's node that asks an archive again at once, whatever it did."""
    return await _verifier(around, "forgiving", checkpoint, distrust=0.0)


async def opened(caller: calls.Caller, kv_strategy: placement_pb2.KvStrategy.ValueType) -> str:
    session = await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=kv_strategy,
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
        ),
        timeout=30,
    )
    return str(session.session_id)


async def stream_of(
    caller: calls.Caller, kv_strategy: placement_pb2.KvStrategy.ValueType
) -> tuple[list[int], Any]:
    """The tokens, and what the session says of itself at the end."""
    session_id = await opened(caller, kv_strategy)
    await caller.append(session_id, PROMPT)
    tokens = (await caller.generate(session_id, MAX_TOKENS)).token_ids
    return tokens, await caller.info(session_id)


def faults(node: Any, kind: str) -> float:
    return float(node.metric("kakeya_restorer_faults_total", kind=kind) or 0.0)


Parts = tuple[bytes | memoryview, ...]


@dataclass
class OneFrame:
    """Changes the bytes of one frame on its way, the `number`-th of its kind."""

    kind: Kind
    change: Callable[[bytearray], None]
    number: int = 3
    seen: int = 0

    def send(self, connection: Any, *parts: bytes | memoryview) -> None:
        whole = bytearray(b"".join(map(bytes, parts)))
        self.seen += whole[KIND_AT] == self.kind
        if whole[KIND_AT] == self.kind and self.seen == self.number:
            self.change(whole)
        send_parts(connection, bytes(whole))


def _flip_signs(frame: bytearray) -> None:
    for at in range(HEADER_BYTES + 3, len(frame), 4):
        frame[at] ^= 0x80


def _zeros(frame: bytearray) -> None:
    frame[HEADER_BYTES:] = bytes(len(frame) - HEADER_BYTES)


def _one_bit(frame: bytearray) -> None:
    frame[HEADER_BYTES + 70] ^= 1


def _no_scale(frame: bytearray) -> None:
    frame[NUMBER_AT : NUMBER_AT + 4] = bytes(4)


@pytest.mark.parametrize(
    ("sender", "fault"),
    [
        (served_connection, OneFrame(Kind.PARTIAL, _flip_signs)),
        wide(served_connection, OneFrame(Kind.PARTIAL, _zeros)),
        (served_connection, OneFrame(Kind.KEPT, _one_bit)),
        (data_connection, OneFrame(Kind.DEPOSIT, _one_bit)),
        (data_connection, OneFrame(Kind.QUERIES, _no_scale)),
    ],
    ids=["flipped signs", "zeros", "a bit read back", "a bit deposited", "scale 0"],
)
async def test_other_bytes_in_flight_are_found_before_they_are_used(
    forgiving: Any, monkeypatch: pytest.MonkeyPatch, sender: Any, fault: OneFrame
) -> None:
    caller = calls.Caller(forgiving.channel)
    full, _ = await stream_of(caller, FULL)
    before = faults(forgiving, "corrupt")
    monkeypatch.setattr(sender, "send_parts", replace(fault).send)
    tokens, info = await stream_of(caller, RESTORED)
    assert tokens == full
    assert faults(forgiving, "corrupt") == before + 1
    assert info.restorer.rebuild_count == 1
    assert not info.restorer.doubtful_end


@pytest.mark.parametrize(
    "other",
    [
        lambda head: replace(head, layer=head.layer ^ 1),
        lambda head: replace(head, position=head.position + 1),
        lambda head: replace(head, count=head.count + 1),
        lambda head: replace(head, serial=head.serial - 1),
        lambda head: replace(head, deposited=head.deposited ^ 1),
    ],
    ids=["layer", "range", "count", "request", "deposits"],
)
async def test_an_answer_to_something_else_is_not_used(
    forgiving: Any, monkeypatch: pytest.MonkeyPatch, other: Callable[[Frame], Frame]
) -> None:
    caller = calls.Caller(forgiving.channel)
    full, _ = await stream_of(caller, FULL)
    before = faults(forgiving, "mismatched")
    seen = 0

    def framed(head: Frame, *body: bytes | memoryview) -> Parts:
        nonlocal seen
        seen += head.kind == Kind.PARTIAL
        return parts_of(other(head) if (head.kind, seen) == (Kind.PARTIAL, 3) else head, *body)

    monkeypatch.setattr(served_connection, "parts_of", framed)
    tokens, info = await stream_of(caller, RESTORED)
    assert tokens == full
    assert faults(forgiving, "mismatched") == before + 1
    assert info.restorer.rebuild_count == 1


Lie = Callable[[Attended], Attended]


def _changed(part: int, change: Callable[[np.ndarray], np.ndarray]) -> Lie:
    def lie(found: Attended) -> Attended:
        parts = list(found.parts)
        parts[part] = change(parts[part]).astype(np.float32)
        return replace(found, parts=tuple(parts))

    return lie


def lying(monkeypatch: pytest.MonkeyPatch, lie: Lie, at: Callable[[int], bool]) -> None:
    """Archives lie in those of their answers that see something."""
    honest, seen = ArchiveUse.finish, 0

    def finish(use: ArchiveUse, carry: Any = None) -> Attended:
        nonlocal seen
        found = honest(use, carry)
        if not found.parts[1].all():
            return found
        seen += 1
        return lie(found) if at(seen) else found

    monkeypatch.setattr(ArchiveUse, "finish", finish)


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        (_changed(0, lambda part: part * np.nan), "not_finite"),
        wide(_changed(1, lambda part: part * np.inf), "not_finite"),
        (_changed(1, lambda part: -part), "not_finite"),
        (_changed(1, lambda part: part * 0), "impossible"),
        (_changed(1, lambda part: part * 1e6), "impossible"),
        (_changed(2, lambda part: part * 0 - 1e30), "impossible"),
    ],
    ids=["nan", "inf", "negative", "no weights", "too many weights", "no score"],
)
async def test_numbers_that_cannot_be_are_not_used(
    forgiving: Any, monkeypatch: pytest.MonkeyPatch, lie: Lie, kind: str
) -> None:
    caller = calls.Caller(forgiving.channel)
    full, _ = await stream_of(caller, FULL)
    before = faults(forgiving, kind)
    lying(monkeypatch, lie, lambda number: number == 3)
    tokens, _ = await stream_of(caller, RESTORED)
    assert tokens == full
    assert faults(forgiving, kind) == before + 1


async def test_a_liar_is_found_named_and_left_and_the_tokens_are_right(
    around: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It flips signs in each answer, from the first on; nobody else has an archive."""
    verifier = await _verifier(around, "wary", checkpoint)
    caller = calls.Caller(verifier.channel)
    full, _ = await stream_of(caller, FULL)
    honest, info = await stream_of(caller, RESTORED)
    assert honest == full
    assert info.restorer.audited_answer_count > 0
    assert verifier.metric("kakeya_restorer_audits_total", outcome="passed") > 0
    lying(monkeypatch, _changed(0, lambda part: -part), lambda _: True)
    tokens, info = await stream_of(caller, RESTORED)
    # Found while the prompt was read, and kept in the verifier's own process from then on.
    assert tokens == full
    assert faults(verifier, "false_answer") == 1
    assert verifier.metric("kakeya_restorer_audits_total", outcome="failed") == 1
    assert info.restorer.own_bytes > 0
    assert (info.restorer.doubtful_from, info.restorer.doubtful_end) == (0, len(PROMPT))
    assert any("gave wrong numbers" in reason for reason in info.plan.reasons)
    assert any("gave a false answer" in reason for reason in info.plan.reasons)
    error = await calls.refused_by(opened(caller, RESTORED))
    assert error.reason == "NO_ARCHIVE"
    assert "The archive of archive gave a false answer, and is not asked for" in error.text


async def test_one_bit_that_changes_at_rest_is_found_and_its_time_is_told(
    around: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a deposit, behind its checksum: what follows the finding is right again."""
    verifier = await _verifier(around, "patient", checkpoint)
    caller = calls.Caller(verifier.channel)
    deposit = Archives.deposit

    def forgetful(
        archives: Archives, archive: Archive, first: int, evicted: Any, tags: Any
    ) -> None:
        groups = tuple(group.copy() for group in evicted.groups)
        for group in groups:
            # In each layer: whichever is looked at next may be any.
            group.reshape(len(group), -1).view(np.uint32)[:, 5] ^= 1 << 20
        deposit(archives, archive, first, EvictedKeysValues(groups), tags)

    full, _ = await stream_of(caller, FULL)
    with monkeypatch.context() as patch:
        patch.setattr(Archives, "deposit", forgetful)
        tokens, info = await stream_of(caller, RESTORED)
    assert tokens == full
    assert faults(verifier, "altered") == 1
    assert info.restorer.rebuild_count == 1
    assert info.restorer.doubtful_end > 0
