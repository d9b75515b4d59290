"""Archives that share sessions, with a short chunk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import evicted_stores, range_nodes


@pytest.fixture
def nodes_of_ranges() -> Iterator[range_nodes.Nodes]:
    """See `range_nodes.Nodes`."""
    nodes = range_nodes.Nodes(evicted_stores.small_shape(), evicted_stores)
    yield nodes
    nodes.close()
