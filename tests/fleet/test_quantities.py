from __future__ import annotations

import pytest

from kakeya_fleet.fleet.quantities import bytes_text, seconds_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 29, "1.5 GiB"), (2 << 40, "2.0 TiB")],
)
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 us"), (0.000085, "85 us"), (0.0032, "3.20 ms"), (1.5, "1.50 s")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
