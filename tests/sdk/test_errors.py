from __future__ import annotations

import pickle
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, errors
from tests.support.scripted_node import ScriptedNode

PROTO = Path(__file__).parents[2] / "proto" / "kakeya" / "v1"
Code = grpc.StatusCode


def classes(
    base: type[errors.KakeyaError] = errors.KakeyaError,
) -> Iterator[type[errors.KakeyaError]]:
    yield base
    for child in base.__subclasses__():
        yield from classes(child)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (Code.NOT_FOUND, "SESSION_NOT_FOUND", kakeya.SessionNotFound),
        (Code.NOT_FOUND, "MODEL_NOT_FOUND", kakeya.ModelNotFound),
        (Code.INVALID_ARGUMENT, "BAD_REQUEST", kakeya.BadRequest),
        (Code.FAILED_PRECONDITION, "INVARIANT_VIOLATED", kakeya.InvariantViolated),
        (Code.FAILED_PRECONDITION, "NO_PLACEMENT", kakeya.NoPlacement),
        (Code.OUT_OF_RANGE, "CONTEXT_EXCEEDED", kakeya.ContextExceeded),
        (Code.UNIMPLEMENTED, "KV_STRATEGY_UNSUPPORTED", kakeya.KvStrategyUnsupported),
        (Code.UNAVAILABLE, "DRAINING", kakeya.Draining),
        # A fork past the end answers with another code than an append.
        (Code.OUT_OF_RANGE, "HISTORY_LENGTH_MISMATCH", kakeya.HistoryLengthMismatch),
        # Reasons of newer nodes take the class of their code.
        (Code.NOT_FOUND, "PLANET_NOT_FOUND", kakeya.NotFound),
        (Code.RESOURCE_EXHAUSTED, "OUT_OF_PATIENCE", kakeya.ResourceExhausted),
        (Code.UNAVAILABLE, "REBOOTING", kakeya.Unavailable),
        (Code.DATA_LOSS, "BIT_ROT", kakeya.RpcError),
        (Code.INTERNAL, "INTERNAL_ERROR", kakeya.RpcError),
    ],
)
async def test_the_reason_decides_the_class(
    node: ScriptedNode, code: Code, reason: str, kind: type[kakeya.KakeyaError]
) -> None:
    node.refuse("GetNode", code, message="why", reason=reason, metadata={"key": "value"})
    async with AsyncClient(node.address) as client:
        with pytest.raises(errors.KakeyaError) as caught:
            await client.fleet.node()
    error = caught.value
    assert type(error) is kind
    assert (error.reason, error.code, error.metadata) == (reason, code.name, {"key": "value"})
    assert str(error) == "why"
    assert error.retry_after_seconds is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.UNAVAILABLE, kakeya.NodeUnreachable),
        (Code.DEADLINE_EXCEEDED, kakeya.DeadlineExceeded),
        (Code.CANCELLED, kakeya.Cancelled),
        (Code.INTERNAL, kakeya.UnexpectedError),
        (Code.UNKNOWN, kakeya.UnexpectedError),
        (Code.UNIMPLEMENTED, kakeya.Unimplemented),
        (Code.RESOURCE_EXHAUSTED, kakeya.ResourceExhausted),
        (Code.PERMISSION_DENIED, kakeya.PermissionDenied),
    ],
)
async def test_without_a_reason_the_code_decides(
    node: ScriptedNode, code: Code, kind: type[kakeya.KakeyaError]
) -> None:
    node.refuse("Leave", code)
    async with AsyncClient(node.address) as client:
        with pytest.raises(errors.KakeyaError) as caught:
            await client.fleet.leave()
    assert type(caught.value) is kind
    assert caught.value.code == code.name
    assert caught.value.metadata["address"] == node.address


async def test_details_of_another_domain_or_none_at_all_are_not_believed(
    node: ScriptedNode,
) -> None:
    node.refuse("Leave", Code.NOT_FOUND, reason="SESSION_NOT_FOUND", domain="example.com")
    node.refuse("Leave", Code.NOT_FOUND, raw_details=b"\xff\xff\xff")
    async with AsyncClient(node.address) as client:
        for _ in range(2):
            with pytest.raises(kakeya.NotFound) as caught:
                await client.fleet.leave()
            assert type(caught.value) is kakeya.NotFound


async def test_a_full_node_says_when_to_try_again(node: ScriptedNode) -> None:
    node.refuse(
        "CreateSession", Code.RESOURCE_EXHAUSTED, reason="OUT_OF_KV_MEMORY", retry_seconds=2.5
    )
    async with AsyncClient(node.address) as client:
        with pytest.raises(kakeya.OutOfKvMemory) as caught:
            await client.create_session("tiny")
    assert caught.value.retry_after_seconds == 2.5


async def test_no_grpc_type_comes_along(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        await session.close()
        for failing in (session.info(), session.generate(1).collect()):
            with pytest.raises(kakeya.SessionNotFound) as caught:
                await failing
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^[│ ├└─]*(\w+)", errors.__doc__.split("\n\n")[1], re.MULTILINE)
    assert drawn == [kind.__name__ for kind in classes()]
    for line in errors.__doc__.split("\n\n")[1].splitlines()[1:]:
        found = re.match(r"([│ ├└─]*)(\w+)", line)
        assert found is not None
        depth, name = len(found[1]) // 4, found[2]
        assert len(getattr(errors, name).__mro__) - len(errors.KakeyaError.__mro__) == depth


def test_every_error_is_public_and_has_its_own_reason() -> None:
    kinds = list(classes())
    assert all(kind.__name__ in kakeya.__all__ for kind in kinds)
    assert len({kind.default_reason for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind("text").reason == kind.default_reason
        assert hasattr(Code, kind.default_code)


def test_every_reason_of_the_contract_has_a_class() -> None:
    known = {kind.default_reason for kind in classes()}
    statuses = {code.name for code in Code}
    for name in ("runtime", "capability", "placement"):
        services = (PROTO / f"{name}.proto").read_text().split("\n}\n")[0]
        comments = " ".join(re.findall(r"//(.*)", services))
        listed = re.findall(r"Errors: (.*?)\.(?:\s|$)", comments)
        assert listed
        reasons = set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", " ".join(listed))) - statuses
        assert reasons <= known


@pytest.mark.parametrize("kind", list(classes()), ids=lambda kind: kind.__name__)
def test_errors_travel_between_processes(kind: type[kakeya.KakeyaError]) -> None:
    error = kind("text", metadata={"key": "value"}, retry_after_seconds=1.0)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "text"
    assert vars(copy) == vars(error)


def test_an_error_reads_as_its_problem_and_its_mend() -> None:
    told = kakeya.OutOfKvMemory("no room", metadata={"mend": "close sessions"})
    assert (told.problem, told.mend) == ("no room", "close sessions")
    assert str(told) == "no room; close sessions"
    assert "".join(traceback.format_exception(told)).count("close sessions") == 1
    said = kakeya.OutOfKvMemory("no room: close sessions")
    assert (str(said), said.mend) == ("no room: close sessions", "")
