"""Places for links: bounded, kept by those who use them, given back by all others."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.admission.limits import LinkServingLimits
from kakeya_fleet.node.links.protocol.contract import LinkPurpose, TensorLink
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.rpc.refusals import TooManyLinks
from tests.support.allowances import allowances_of

REQUEST = LinkRequest(LinkPurpose.FEATURES)
SETTINGS = LinkServingLimits(at_once=3, memory_bytes=125)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def _serve(_link: TensorLink, _want_encoder: bool) -> None:
    raise NotImplementedError


def service(memory_bytes: int = 1) -> LinkService:
    return LinkService(LinkLimits(), memory_bytes, _serve)


def test_the_table_is_bounded_in_links_and_in_bytes() -> None:
    table = LinkTable(Clock(), allowances_of(links=SETTINGS))
    first, *_ = links = [table.open(REQUEST, service()) for _ in range(3)]
    assert len({link.link_id for link in links}) == 3
    with pytest.raises(TooManyLinks):
        table.open(REQUEST, service())
    table.close(first.link_id, "closed")
    assert first.ended.is_set()
    assert table.find(first.link_id) is None
    table.open(REQUEST, service(98))
    assert table.reserved_bytes == 100
    table.close(links[1].link_id, "closed")
    with pytest.raises(TooManyLinks):
        table.open(REQUEST, service(2))
    table.close_all("over")
    assert len(table) == 0


def test_links_that_nobody_claims_or_uses_give_their_places_back() -> None:
    clock = Clock()
    table = LinkTable(clock, allowances_of(links=SETTINGS))
    used, idle = table.open(REQUEST, service()), table.open(REQUEST, service())
    used.is_streaming = idle.is_streaming = True
    abandoned = table.open(REQUEST, service())
    clock.now = SETTINGS.unclaimed_seconds - 0.1
    table.sweep()
    assert len(table) == 3
    clock.now = SETTINGS.unclaimed_seconds
    table.sweep()
    assert list(table) == [used, idle]
    assert abandoned.ended.is_set()
    clock.now = SETTINGS.idle_seconds - 1
    assert table.find(used.link_id) is used
    clock.now = SETTINGS.idle_seconds + 1
    table.sweep()
    assert list(table) == [used]
    assert "idle" in idle.end_reason
