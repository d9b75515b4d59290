"""Each error of the client has a status of HTTP."""

from typing import Any

import pytest

import kakeya
from kakeya import KakeyaError
from kakeya_fleet.node.http.refusal import refusal_of

EXPECTED: dict[type[KakeyaError], int] = {
    kakeya.ModelNotFound: 404,
    kakeya.BadRequest: 400,
    kakeya.TokenOutOfVocabulary: 400,
    kakeya.ContextExceeded: 400,
    kakeya.KvStrategyUnsupported: 400,
    kakeya.OutOfKvMemory: 429,
    kakeya.ArchiveFull: 429,
    kakeya.NoPlacement: 503,
    kakeya.Draining: 503,
    kakeya.GroupLost: 503,
    kakeya.RestorerLost: 503,
    kakeya.NodeUnreachable: 503,
    kakeya.SessionNotFound: 503,
    kakeya.DeadlineExceeded: 504,
    kakeya.UnexpectedError: 502,
    kakeya.InvariantViolated: 500,
}


@pytest.mark.parametrize(("kind", "status"), EXPECTED.items(), ids=str)
def test_statuses(kind: type[KakeyaError], status: int) -> None:
    refusal = refusal_of(kind("the words of the node"))
    assert (refusal.status, refusal.message) == (status, "the words of the node")
    body: Any = refusal.envelope()
    assert body["error"]["code"] == kind.default_reason
    assert ("Retry-After" in refusal.headers()) == (status in {429, 503})


def test_the_nodes_own_hint_is_kept() -> None:
    refusal = refusal_of(kakeya.OutOfKvMemory("full", retry_after_seconds=2.5))
    assert refusal.headers() == {"Retry-After": "3"}


def every(kind: type[KakeyaError]) -> set[type[KakeyaError]]:
    return {kind}.union(*(every(each) for each in kind.__subclasses__()))


def test_no_error_of_the_fleet_is_taken_for_success() -> None:
    assert all(400 <= refusal_of(kind("x")).status < 600 for kind in every(KakeyaError))


def test_a_cause_that_stands_alone_comes_with_its_mend() -> None:
    full = kakeya.OutOfKvMemory("no room.", metadata={"mend": "close sessions"})
    assert refusal_of(full).message == "no room; close sessions."
