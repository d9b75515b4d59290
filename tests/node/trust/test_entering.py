"""What a grant must be before a node keeps it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.trust.certificates import new_key, new_request
from kakeya_fleet.node.trust.membership_files import KeyPair, MembershipFiles
from kakeya_fleet.node.trust.statement_wire import statement_from_bytes
from kakeya_fleet.node.trust.trust import Trust, enter_fleet
from tests.support.trusted_nodes import fleet_of, id_of

JOINER = id_of("joiner")


@pytest.fixture
def keeper(tmp_path: Path) -> Trust:
    (keeper,) = fleet_of(tmp_path / "home", 1)
    return keeper


@pytest.fixture
def files(tmp_path: Path) -> MembershipFiles:
    """The joiner's."""
    (tmp_path / "joiner").mkdir()
    return MembershipFiles(tmp_path / "joiner")


def granted(keeper: Trust, node_id: str) -> KeyPair:
    key = new_key()
    return KeyPair(key, keeper.issue(new_request(key, node_id), node_id))


def test_a_grant_makes_a_member(keeper: Trust, files: MembershipFiles) -> None:
    member, said = granted(keeper, JOINER), keeper.ledger.statements
    trust = enter_fleet(files, keeper.fleet, said, member, JOINER, time.time)
    assert trust.member_of(member.certificate) == JOINER
    assert files.fleet() == keeper.fleet


def test_a_certificate_of_another_node_leaves_nothing_behind(
    keeper: Trust, files: MembershipFiles
) -> None:
    other, said = granted(keeper, id_of("other")), keeper.ledger.statements
    with pytest.raises(BadCertificate, match="another node's"):
        enter_fleet(files, keeper.fleet, said, other, JOINER, time.time)
    assert not files.path.exists()


def test_a_grant_without_its_keepers_leaves_nothing_behind(
    keeper: Trust, files: MembershipFiles
) -> None:
    with pytest.raises(StatementRejected, match="first keeper"):
        enter_fleet(files, keeper.fleet, (), granted(keeper, JOINER), JOINER, time.time)
    assert not files.path.exists()


@pytest.mark.parametrize("content", [b"\xff", b"one", b""])
def test_bytes_that_are_no_statement_are_refused_by_name(keeper: Trust, content: bytes) -> None:
    with pytest.raises(StatementRejected):
        statement_from_bytes(content, keeper.fleet.fleet_id)
