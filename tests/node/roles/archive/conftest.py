"""Archives that share sessions, with a short chunk; archives of a fleet with an authority."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kakeya_fleet.node.trust.trust import Trust
from tests.support import evicted_stores, range_nodes, sealed_archives, trusted_nodes


@pytest.fixture
def nodes_of_ranges() -> Iterator[range_nodes.Nodes]:
    """See `range_nodes.Nodes`."""
    nodes = range_nodes.Nodes(evicted_stores.small_shape(), evicted_stores)
    yield nodes
    nodes.close()


@pytest.fixture
def archives() -> Iterator[sealed_archives.Archives]:
    """See `sealed_archives.Archives`."""
    started = sealed_archives.Archives()
    yield started
    started.close()


@pytest.fixture
def fleet(tmp_path: Path) -> list[Trust]:
    """A keeper, which has the archive; a member that uses it; another member."""
    return trusted_nodes.fleet_of(tmp_path / "fleet", 3)
