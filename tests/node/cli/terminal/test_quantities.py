from kakeya_fleet.node.cli.terminal.quantities import (
    bytes_text,
    rate_text,
    ratio_text,
    seconds_text,
    share_text,
    speed_text,
)

BYTES = {
    0: "0 B",
    1023: "1023 B",
    1024: "1.00 KiB",
    3_328_599_654: "3.10 GiB",
    12 * 1024**3: "12.0 GiB",
    5 * 1024**5: "5,120 TiB",
}
DURATIONS = {
    0: "0 s",
    0.000042: "42.0 us",
    0.00042: "0.42 ms",
    0.00981: "9.81 ms",
    0.5: "500 ms",
    1.239: "1.24 s",
    59.5: "59.5 s",
    200: "3 min 20 s",
    7380: "2 h 3 min",
}
RATES = {
    0.0: "-",
    1.0: "1.00 B/s",
    999.6: "1.00 kB/s",
    94e6: "94.0 MB/s",
    7.7e9: "7.70 GB/s",
    2e13: "20,000 GB/s",
}


def test_bytes_have_the_largest_binary_unit_that_keeps_them_above_one() -> None:
    assert {count: bytes_text(count) for count in BYTES} == BYTES


def test_durations_are_read_at_a_glance() -> None:
    assert {seconds: seconds_text(seconds) for seconds in DURATIONS} == DURATIONS


def test_a_negative_duration_is_none() -> None:
    assert seconds_text(-0.1) == "?"


def test_unknown_speeds_and_ratios_are_a_dash() -> None:
    assert speed_text(0.0) == "-"
    assert ratio_text(1.0, 0.0) == "-"
    assert share_text(1.0, 0.0) == "-"


def test_rates_have_decimal_units() -> None:
    assert {rate: rate_text(rate) for rate in RATES} == RATES


def test_speeds_ratios_and_shares() -> None:
    assert speed_text(327.9) == "328 tok/s"
    assert speed_text(9.412) == "9.41 tok/s"
    assert ratio_text(300.0, 130.0) == "2.31x"
    assert share_text(13, 14) == "93 %"
