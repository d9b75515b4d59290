"""Until when a certificate is good, against a library that knows all of X.509."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from kakeya.certificate_dates import validity
from kakeya_fleet.node.trust.certificates import new_authority, new_key
from kakeya_fleet.node.trust.membership_files import pem_of
from tests.support.trusted_nodes import fleet_of


@pytest.mark.parametrize("year", [1990, 2026, 2045, 2070])
def test_both_forms_of_times_are_read(year: int) -> None:
    # RFC 5280: two digits of the year to 2049, four from 2050 on.
    der = new_authority(new_key(), datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC))
    known = x509.load_der_x509_certificate(der)
    assert validity(pem_of(der)) == (known.not_valid_before_utc, known.not_valid_after_utc)


def test_the_first_certificate_behind_a_key_is_read(tmp_path: Path) -> None:
    (own,) = fleet_of(tmp_path / "home", 1)
    known = x509.load_der_x509_certificate(own.member.certificate)
    dates = validity(own.files.member_file.read_bytes())
    assert dates == (known.not_valid_before_utc, known.not_valid_after_utc)


def test_what_is_cut_off_or_no_certificate_has_no_dates() -> None:
    der = new_authority(new_key(), datetime.now(UTC))
    dates = validity(pem_of(der))
    read = [validity(ssl.DER_cert_to_PEM_cert(der[:end]).encode()) for end in range(len(der))]
    assert dates is not None
    assert set(read) == {None}
    assert validity(b"x") is None
