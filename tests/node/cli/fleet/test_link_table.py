from kakeya import LinkPurpose, TensorLink, Transport
from kakeya_fleet.node.cli.fleet.link_table import COLUMNS, heading, rows
from kakeya_fleet.node.cli.terminal.tables import plain_table

LINK = TensorLink(
    "b" * 64,
    LinkPurpose.FEATURES,
    Transport.RING,
    generation=2,
    bytes_per_second=1.5e9,
    reason="The ring took 0.2 of what gRPC takes.",
    changed_seconds_ago=12.3,
    is_caller=True,
    tensor_count=1234,
    byte_count=3 << 20,
    demotion_count=1,
)
FRESH = TensorLink(
    "c" * 64, LinkPurpose.FEATURES, Transport.GRPC, 0, 0.0, "", -0.001, False, 0, 0, 0
)


class Card:
    name = "mini-1"


class Node:
    card = Card()

    def __init__(self, *links) -> None:
        self.tensor_links = links


def test_a_link_is_told_with_what_carries_it_how_fast_and_why() -> None:
    _, first, second = plain_table(COLUMNS, rows([FRESH, LINK], {"b" * 64: "a-mini"})).splitlines()
    assert first.split("  ")[0] == "a-mini (opened here)"
    for words in (
        "features", "ring", " 2 ", "1.50 GB/s", "3.00 MiB in 1,234", "12.3 s",
        "The ring took 0.2 of what gRPC takes. (demoted once)",
    ):  # fmt: skip
        assert words in first, words
    assert second.split("  ")[0] == f"{'c' * 12} (opened there)"
    assert " ".join(second.split()[3:]) == "features grpc - - 0 B in 0 0 s -"


def test_the_heading_counts() -> None:
    assert heading(Node()) == "mini-1: no tensor links"
    assert heading(Node(LINK)) == "mini-1: 1 tensor link"
    assert heading(Node(LINK, FRESH)) == "mini-1: 2 tensor links"
