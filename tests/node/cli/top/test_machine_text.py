"""What `fleet top` says of a node's machine."""

from __future__ import annotations

from dataclasses import replace

from kakeya_fleet.node.cli.top.details import machine_text
from tests.support.fleet_scene import GIB, card


def test_memory_that_is_the_accelerators_alone_is_shown() -> None:
    plain = replace(card("mini-1"), accelerator_memory_total_bytes=16 * GIB)
    assert machine_text(plain) == "linux/x86_64, cpu x"
    own = replace(
        plain,
        accelerator_kind="cuda",
        accelerator_name="H100",
        accelerator_memory_total_bytes=80 * GIB,
        accelerator_memory_free_bytes=70 * GIB,
    )
    assert machine_text(own) == (
        "linux/x86_64, cuda H100, 70.0 / 80.0 GiB of its own free at the start"
    )
    # Nodes of an earlier version do not tell.
    assert machine_text(replace(own, accelerator_memory_total_bytes=0)) == (
        "linux/x86_64, cuda H100"
    )
