from kakeya_fleet.node.cli.shell.remedies import with_remedy


def test_a_message_that_says_its_remedy_gets_no_second_one() -> None:
    assert with_remedy("NO_LOCAL_NODE", "none here: start one") == "none here: start one."
    assert with_remedy("NOT_LOOPBACK", "refused").startswith("refused; run the command")


def test_the_terminals_words_stand_in_place_of_the_nodes() -> None:
    assert "--max-tokens" in with_remedy("CONTEXT_EXCEEDED", "too long", "generate fewer tokens")


def test_the_nodes_words_stand_for_a_reason_that_the_terminal_does_not_know() -> None:
    assert with_remedy("NEWER_REASON", "no room", "close sessions") == "no room; close sessions."
