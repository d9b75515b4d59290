"""docs/openapi.json says what a node's HTTP takes and answers; schemathesis asks by it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.http.application import HttpApplication
from kakeya_fleet.node.http.callers import ANSWERING
from kakeya_fleet.node.http.chat_request import KNOWN
from kakeya_fleet.node.http.recent_tokens import RecentTokens
from kakeya_fleet.node.http.settings import HttpSettings
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.watch.span_ring import SpanRing
from scripts.attack.http_schema import examine
from scripts.write import openapi
from tests.node.http.conftest import HttpFleet, http_of
from tests.support.breadth import wide

SEED = 20_261_124
ENOUGH = 20
SECONDS = (5, 10, 20, 40)
"""Tried one after the other, until the machine was free enough for `ENOUGH` requests. Two of a
processor are schemathesis's own, before its first request."""
LONGER_SECONDS = (16, 32, 64)
KEPT = Path(__file__).resolve().parents[3] / ".hypothesis"
"""What hypothesis found out about characters, seconds of a processor in a folder that is new."""


def test_the_description_is_made_of_the_code() -> None:
    assert openapi.PAGE.read_text() == openapi.text(), "python -m scripts.write.openapi"


def test_a_field_that_is_not_described_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openapi, "CHAT_FIELDS", KNOWN | {"new_field"})
    with pytest.raises(ValueError, match="new_field"):
        openapi.description()


def test_every_path_that_answers_is_described() -> None:
    metrics = NodeMetrics()
    application = HttpApplication(
        HttpSettings("127.0.0.1", 0),
        metrics,
        Allowances(Limits(), metrics),
        SpanRing(),
        None,
        RecentTokens(time.monotonic),
    )
    served = {
        (route.method.lower(), route.resource.canonical)
        for route in application._application().router.routes()
        if route.resource is not None and route.resource.canonical.startswith(ANSWERING)
    }
    told = {
        (method, path)
        for path, operations in openapi.description()["paths"].items()
        for method in operations
        if method != "parameters"
    }
    # aiohttp answers HEAD wherever it answers GET.
    assert {each for each in served if each[0] != "head"} == told


@pytest.mark.parametrize("tries", [SECONDS, wide(LONGER_SECONDS)], ids=["some", "many"])
def test_every_answer_to_right_and_wrong_requests_is_described(
    fleet: HttpFleet, monkeypatch: pytest.MonkeyPatch, tries: tuple[int, ...]
) -> None:
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(KEPT))
    generated = 0
    for seconds in tries:
        found = examine(http_of(fleet.one), examples=1, seed=SEED, seconds=seconds)
        assert (found["failures"], found["errors"], found["exit"]) == ([], [], 0), f"seed {SEED}"
        generated = found["test_cases"]["generated"]
        if generated > ENOUGH:
            break
    assert generated > ENOUGH
