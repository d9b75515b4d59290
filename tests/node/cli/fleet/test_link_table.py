from kakeya import LinkPurpose, Node, NodeLoad, TensorLink, Transport
from kakeya_fleet.node.cli.fleet.link_table import COLUMNS, heading, rows
from kakeya_fleet.node.cli.terminal.tables import plain_table
from tests.node.cli.fleet.test_fleet_table import card

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


def node(*links: TensorLink) -> Node:
    return Node(card("mini-1"), (), NodeLoad(0, 0, 0, 0, 0, 0), (), "", False, links)


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
    assert heading(node()) == "mini-1: no tensor links"
    assert heading(node(LINK)) == "mini-1: 1 tensor link"
    assert heading(node(LINK, FRESH)) == "mini-1: 2 tensor links"
