"""Joins by short codes: multicast DNS where it works, and several issuers of one nameplate."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from kakeya_fleet.fleet.errors import (
    FleetError,
    JoinCodeWrong,
    NoInvitationFound,
)
from kakeya_fleet.node.joining import join_client
from kakeya_fleet.node.joining.join_client import JoinDeadlines
from kakeya_fleet.node.joining.join_discovery import FoundIssuer, JoinAnnouncer
from kakeya_fleet.node.membership.network import multicast_fault
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.joining.conftest import LOOPBACK, MakeHouse
from tests.support.calls import until


@pytest.fixture
def _loopback_multicast() -> None:
    fault = multicast_fault("127.0.0.1")
    if fault is not None:
        pytest.skip(fault)


@pytest.mark.usefixtures("_loopback_multicast")
async def test_a_machine_joins_by_the_short_code_found_by_multicast(
    make_house: MakeHouse,
) -> None:
    house = make_house(mdns=True)
    invitation = await house.issuer.invite()
    assert invitation.multicast_fault == ""
    grant = await house.join(
        invitation.short_code.replace("-", " "),
        interfaces=LOOPBACK,
        deadlines=JoinDeadlines(search_seconds=60.0),
    )
    assert house.authority.has_issued(grant.certificate)


@pytest.mark.usefixtures("_loopback_multicast")
async def test_a_code_that_nobody_announces_is_not_found(make_house: MakeHouse) -> None:
    with pytest.raises(NoInvitationFound, match="no node announced the invitation 999"):
        await make_house().join(
            "999-000-000", interfaces=LOOPBACK, deadlines=JoinDeadlines(search_seconds=0.1)
        )


async def test_a_node_without_multicast_says_that_the_short_code_is_not_found(
    make_house: MakeHouse,
) -> None:
    invitation = await make_house().issuer.invite()
    assert invitation.multicast_fault == "multicast DNS is switched off on this node"
    # The interface of no machine.
    announcer = JoinAnnouncer("aa" * 32, ("192.0.2.77",), 7101)
    assert "192.0.2.77" in announcer.fault
    await announcer.show(["123"])
    await announcer.close()


async def test_a_network_without_multicast_is_told_with_the_short_code(
    make_house: MakeHouse,
) -> None:
    with pytest.raises(NoInvitationFound, match="no IPv4 address"):
        await make_house().join("999-000-000", interfaces=("::1",))


@dataclass
class FakeSearch:
    """Finds what the test says, in place of the network."""

    found: list[FoundIssuer]
    fault: str = ""

    def __call__(self, nameplate: str, interfaces: object) -> FakeSearch:
        return self

    async def __aenter__(self) -> FakeSearch:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def next(self, seconds: float) -> FoundIssuer | None:
        return self.found.pop(0) if self.found else None


async def test_of_several_issuers_of_one_nameplate_the_one_with_the_code_is_found(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    house, neighbour = make_house(), make_house()
    invitation = await house.issuer.invite()
    # The neighbour's has the same nameplate by chance.
    monkeypatch.setattr("secrets.randbelow", same_nameplate(invitation.nameplate))
    assert (await neighbour.issuer.invite()).nameplate == invitation.nameplate
    closed = f"127.0.0.1:{free_port()}"
    found = [
        FoundIssuer("cc" * 32, (closed,)),
        FoundIssuer(neighbour.issuer_id, (closed, f"127.0.0.1:{neighbour.issuer.port}")),
        FoundIssuer(house.issuer_id, (f"127.0.0.1:{house.issuer.port}",)),
    ]
    monkeypatch.setattr(join_client, "IssuerSearch", FakeSearch(found))
    grant = await house.join(invitation.short_code, deadlines=JoinDeadlines(connect_seconds=2.0))
    assert house.authority.has_issued(grant.certificate)
    await until(lambda: neighbour.kinds() == [EventKind.JOIN_CODE_WRONG])


async def test_false_announcements_get_three_guesses_and_no_more(
    make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    houses = [make_house() for _ in range(4)]
    monkeypatch.setattr("secrets.randbelow", same_nameplate("123"))
    found = []
    for each in houses:
        await each.issuer.invite()
        found.append(FoundIssuer(each.issuer_id, (f"127.0.0.1:{each.issuer.port}",)))
    monkeypatch.setattr(join_client, "IssuerSearch", FakeSearch(found))
    with pytest.raises(FleetError) as raised:
        await houses[0].join("123-999-999")
    assert isinstance(raised.value, JoinCodeWrong)
    assert [house.kinds() for house in houses] == [[EventKind.JOIN_CODE_WRONG]] * 3 + [[]]


def same_nameplate(nameplate: str) -> Callable[[int], int]:
    return lambda below: int(nameplate) if below > int(nameplate) else 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
