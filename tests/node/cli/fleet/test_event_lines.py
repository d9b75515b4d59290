"""What several nodes tell of one node is one line: the cases of the dashboard's twin."""

from kakeya import EventSeverity, NodeEvent
from kakeya_fleet.node.cli.fleet.event_lines import event_lines


def drawn(*told: tuple[str, float, str, str]) -> list[tuple[float, str, str, str]]:
    events = [
        (teller, NodeEvent(number, at, EventSeverity.INFO, kind, "", "", subject, ""))
        for number, (teller, at, kind, subject) in enumerate(told)
    ]
    return [
        (line.event.at_unix, line.event.kind, line.event.subject_node_id, "".join(line.teller_ids))
        for line in event_lines(events)
    ]


def test_a_death_that_three_nodes_tell_is_one_line_at_the_time_of_the_first() -> None:
    dead = "PEER_DEAD"
    told = [("a", 1, dead, "x"), ("b", 2, dead, "x"), ("c", 9, dead, "x"), ("a", 9, dead, "y")]
    assert drawn(*told) == [(1, dead, "x", "abc"), (9, dead, "y", "a")]


def test_a_node_that_is_lost_comes_back_and_is_lost_again_has_a_line_for_each() -> None:
    suspect, joined = "PEER_SUSPECT", "PEER_JOINED"
    told = [("a", 1, suspect, "x"), ("b", 1.5, suspect, "x"), ("a", 2, joined, "x")]
    told += [("b", 2.5, joined, "x"), ("a", 4, suspect, "x"), ("a", 5, joined, "x")]
    first = [(1, suspect, "x", "ab"), (2, joined, "x", "ab")]
    assert drawn(*told) == [*first, (4, suspect, "x", "a"), (5, joined, "x", "a")]


def test_what_is_told_long_after_is_news_but_not_that_a_node_which_is_there_has_joined() -> None:
    joined, dead = "PEER_JOINED", "PEER_DEAD"
    told = [("a", 1, joined, "x"), ("b", 600, joined, "x"), ("b", 900, joined, "x")]
    told += [("a", 1000, dead, "x"), ("b", 1100, dead, "x")]
    assert drawn(*told) == [(1, joined, "x", "ab"), (1000, dead, "x", "a"), (1100, dead, "x", "b")]


def test_what_a_node_tells_of_its_own_links_or_of_nobody_stays_its_own() -> None:
    told = [(teller, 1, "LINK_DEMOTED", "x") for teller in "ab"]
    told += [(teller, 2, "MODEL_LOADED", "") for teller in "ab"]
    assert len(drawn(*told)) == 4
