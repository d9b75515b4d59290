from kakeya_fleet.node.cli.terminal.folding import folded, kept_columns, packed


def test_lines_fold_between_words_and_hang() -> None:
    text = "why\n  - the verifier alone is faster at 127.0.0.1:7600"
    assert folded(text, 24) == ("why\n  - the verifier alone\n    is faster at\n    127.0.0.1:7600")


def test_what_fits_stays_as_it_is() -> None:
    assert folded("a  b   c", 8) == "a  b   c"
    assert folded("", 1) == ""


def test_a_word_longer_than_the_line_stays_whole() -> None:
    assert folded("see 192.168.178.20:7600 there", 8) == "see\n  192.168.178.20:7600\n  there"


def test_columns_leave_in_their_order_until_the_others_fit() -> None:
    assert kept_columns([5, 10, 10], [0, 2, 1], 29) == [0, 1, 2]
    assert kept_columns([5, 10, 10], [0, 2, 1], 28) == [0, 1]
    assert kept_columns([5, 10, 10], [0, 2, 1], 16) == [0]
    assert kept_columns([5, 10, 10], [0, 2, 1], 3) == [0]


def test_parts_are_packed_in_their_order() -> None:
    assert packed([3, 3, 9, 2], 8) == [[0, 1], [2], [3]]
    assert packed([], 8) == []
