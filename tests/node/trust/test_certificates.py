from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from kakeya_fleet.fleet.trust.host_names import HostNames
from kakeya_fleet.node.errors import (
    BadCertificate,
    LastKeeper,
    NotAKeeper,
    StateExposed,
    TrustCorrupt,
)
from kakeya_fleet.node.trust.certificates import (
    MEMBER_LIFE,
    MEMBER_NAME,
    hosts_of,
    issue,
    load_certificate,
    member_of,
    name_of_node,
    new_authority,
    new_key,
    new_request,
    node_of_name,
)
from kakeya_fleet.node.trust.membership_files import MembershipFiles
from kakeya_fleet.node.trust.trust import Trust
from tests.support.trusted_nodes import fleet_of, id_of, put_out, renew

NOW = datetime(2026, 11, 24, tzinfo=UTC)
NODE = id_of("node")


@pytest.fixture
def authority() -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    key = new_key()
    return key, new_authority(key, NOW)


def certified(authority: tuple[ec.EllipticCurvePrivateKey, bytes], node_id: str = NODE) -> bytes:
    return issue(*authority, new_request(new_key(), node_id), node_id, NOW)


def test_a_nodes_name_is_a_label_of_dns_and_leads_back() -> None:
    name = name_of_node(NODE)
    assert len(name.partition(".")[0]) <= 63
    assert name == name.lower()
    assert node_of_name(name) == node_of_name(name.upper()) == NODE
    for other in (MEMBER_NAME, "", ".node.kakeya", f"x.{name}", name_of_node(NODE)[1:]):
        assert node_of_name(other) is None


def test_a_certificate_names_where_its_node_is_called_and_no_other_node(
    authority: tuple[ec.EllipticCurvePrivateKey, bytes],
) -> None:
    other = name_of_node(id_of("other"))
    asked = HostNames.of(
        ["mini-1.local", "example.com", other, MEMBER_NAME], ["10.0.0.7", "8.8.8.8"]
    )
    request = new_request(new_key(), NODE, asked)
    certificate = issue(*authority, request, NODE, NOW)
    assert hosts_of(certificate) == HostNames.of(["mini-1.local"], ["10.0.0.7"])
    assert member_of(certificate, [authority[1]], NOW) == NODE
    seen_at = issue(*authority, request, NODE, NOW, "8.8.8.8")
    assert hosts_of(seen_at) == HostNames.of(["mini-1.local"], ["10.0.0.7", "8.8.8.8"])


def test_a_certificate_is_good_for_its_node_its_week_and_its_fleet(
    authority: tuple[ec.EllipticCurvePrivateKey, bytes],
) -> None:
    certificate = certified(authority)
    assert member_of(certificate, [authority[1]], NOW) == NODE
    assert member_of(certificate, [authority[1]], NOW + MEMBER_LIFE) == NODE
    for at, fault in ((NOW + MEMBER_LIFE * 1.01, "expired"), (NOW - timedelta(hours=2), "clock")):
        with pytest.raises(BadCertificate) as caught:
            member_of(certificate, [authority[1]], at)
        assert caught.value.metadata["fault"] == fault
    # Issued now, it is good from an hour ago on: the clock is behind by two.
    assert "that clock is" in str(caught.value)
    assert "2.0 hours behind" in str(caught.value)
    other = new_authority(new_key(), NOW)
    with pytest.raises(BadCertificate, match="no keeper of this fleet has signed"):
        member_of(certificate, [other], NOW)
    # Two authorities have the same name: the key decides.
    assert member_of(certificate, [other, authority[1]], NOW) == NODE


def test_a_member_makes_no_certificates_for_others(
    authority: tuple[ec.EllipticCurvePrivateKey, bytes],
) -> None:
    key = new_key()
    own = issue(*authority, new_request(key, NODE), NODE, NOW)
    usage = load_certificate(own).extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.digital_signature
    assert not usage.key_cert_sign
    issuer = load_certificate(own)
    forged = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer.subject)
        .public_key(new_key().public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name_of_node(id_of("victim")))]),
            critical=True,
        )
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.DER)
    )
    for authorities in ([authority[1]], [own], [own, authority[1]]):
        with pytest.raises(BadCertificate):
            member_of(forged, authorities, NOW)


def test_a_request_gets_its_callers_name_whatever_it_asks_for(
    authority: tuple[ec.EllipticCurvePrivateKey, bytes],
) -> None:
    asked = new_request(new_key(), id_of("victim"))
    certificate = issue(*authority, asked, NODE, NOW)
    names = load_certificate(certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == [name_of_node(NODE), MEMBER_NAME]


def test_a_request_whose_key_is_no_point_of_its_curve_gets_none(
    authority: tuple[ec.EllipticCurvePrivateKey, bytes],
) -> None:
    asked = bytearray(new_request(new_key(), NODE))
    # Behind the curve's name: a bit string of 66 bytes, then the point (RFC 5480, section 2.2).
    point = asked.index(bytes.fromhex("03420004")) + 4
    asked[point + 40] ^= 1
    with pytest.raises(BadCertificate, match="no request"):
        issue(*authority, bytes(asked), NODE, NOW)


@pytest.mark.parametrize("content", [b"", b"no request", bytes(400)])
def test_what_is_no_request_gets_none(
    authority: tuple[ec.EllipticCurvePrivateKey, bytes], content: bytes
) -> None:
    with pytest.raises(BadCertificate, match="no request"):
        issue(*authority, content, NODE, NOW)


def test_keys_are_kept_for_their_owner_alone_and_refused_when_others_can_read_them(
    tmp_path: Path,
) -> None:
    (keeper,) = fleet_of(tmp_path, 1)
    folder = keeper.files.path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
    for name in ("member.pem", "authority.pem", "owner.key"):
        file = folder / name
        file.chmod(0o640)
        with pytest.raises(StateExposed, match=name):
            reopened(keeper).files.owner_key()
        file.chmod(0o600)
    assert reopened(keeper).member_of(keeper.member.certificate) == keeper.node_id


def reopened(trust: Trust) -> Trust:
    files = MembershipFiles(trust.files.path.parent)
    found = Trust.open(files, trust.node_id, trust.now_unix)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["fleet", "statements", "member.pem", "authority.pem"])
def test_what_is_damaged_is_named_and_never_made_anew(tmp_path: Path, name: str) -> None:
    (keeper,) = fleet_of(tmp_path, 1)
    file = keeper.files.path / name
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(TrustCorrupt, match=name):
        reopened(keeper)


def test_a_member_of_no_authority_lets_nobody_in(tmp_path: Path) -> None:
    keeper, member = fleet_of(tmp_path, 2)
    assert keeper.is_keeper
    assert not member.is_keeper
    with pytest.raises(NotAKeeper):
        member.issue(new_request(new_key(), NODE), NODE)
    with pytest.raises(NotAKeeper):
        member.revoke(keeper.node_id)
    # A key of its own helps only once a keeper has named it.
    certificate = member.make_authority()
    with pytest.raises(NotAKeeper):
        member.issue(new_request(new_key(), NODE), NODE)
    keeper.name_keeper(member.node_id, certificate)
    member.merge(keeper.ledger.statements)
    newcomer = member.issue(new_request(new_key(), NODE), NODE)
    assert keeper.member_of(newcomer) == member.member_of(newcomer) == NODE


def test_who_is_put_out_is_no_member_and_gets_no_new_certificate(tmp_path: Path) -> None:
    keeper, other, third = fleet_of(tmp_path, 3)
    put_out(keeper, other.node_id, third)
    for trust in (keeper, third, reopened(third)):
        with pytest.raises(BadCertificate, match="put out") as caught:
            trust.member_of(other.member.certificate)
        assert caught.value.metadata["fault"] == "revoked"
    with pytest.raises(BadCertificate, match="put out"):
        keeper.issue(new_request(new_key(), other.node_id), other.node_id)
    assert keeper.member_of(third.member.certificate) == third.node_id


def test_a_keeper_that_is_put_out_takes_its_own_certificates_with_it_and_nobody_elses_word(
    tmp_path: Path,
) -> None:
    first, second, third = fleet_of(tmp_path, 3)
    first.name_keeper(second.node_id, second.make_authority())
    for member in (second, third):
        member.merge(first.ledger.statements)
    newcomer = second.issue(new_request(new_key(), NODE), NODE)
    second.revoke(first.node_id, [third.member.certificate])
    third.merge(second.ledger.statements)
    assert third.ledger.revoked == {first.node_id}
    assert [each.node_id for each in third.ledger.keepers.values()] == [second.node_id]
    assert third.member_of(newcomer) == NODE
    # What the first one had signed for members is good until the other renews it, no more of it.
    assert second.member_of(third.member.certificate) == third.node_id
    assert not third.is_kept
    stolen = first.files.authority()
    assert stolen is not None
    for node_id in (third.node_id, id_of("newcomer")):
        asked = new_request(new_key(), node_id)
        forged = issue(stolen.key, stolen.certificate, asked, node_id, datetime.now(UTC))
        with pytest.raises(BadCertificate, match="no keeper"):
            third.member_of(forged)
    renew(third, second)
    assert third.is_kept
    assert second.member_of(third.member.certificate) == third.node_id
    with pytest.raises(LastKeeper):
        put_out(second, second.node_id)
