"""Until when a certificate is good: two fields of X.509 (RFC 5280, 4.1), read in DER (X.690).

Nothing is verified here: that is TLS's part, and says less of what was wrong.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_VERSION, _UTC_TIME = 0xA0, 0x17


def validity(pem: bytes) -> tuple[datetime, datetime] | None:
    """From when until when the first certificate in PEM is good; None where none can be read."""
    start, end = pem.find(_BEGIN), pem.find(_END)
    if not 0 <= start < end:
        return None
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[start : end + len(_END)].decode("ascii"))
        _, certificate, _ = _element(der)
        _, signed, _ = _element(certificate)
        tag, _, rest = _element(signed)
        # The version may be left out; serial number, algorithm and issuer follow it.
        for _ in range(3 if tag == _VERSION else 2):
            _, _, rest = _element(rest)
        _, dates, _ = _element(rest)
        first_tag, first, rest = _element(dates)
        last_tag, last, _ = _element(rest)
        return _time(first_tag, first), _time(last_tag, last)
    except (ValueError, IndexError):
        return None


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element, and what follows it."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    end = start + length
    if end > len(der):
        raise ValueError("cut off")
    return der[0], der[start:end], der[end:]


def _time(tag: int, content: bytes) -> datetime:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of a year are of 1950 to 2049.
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
