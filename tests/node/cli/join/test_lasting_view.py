from collections.abc import Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from kakeya_fleet.node.cli.join.lasting_view import LastingView
from kakeya_fleet.node.cli.terminal.streams import OutputLost

FULL = OutputLost(OSError(28, "No space left on device"))


class Failing:
    """A view whose output fails as told, a failure a call."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.shown: list[object] = []

    def loading(self, roles: Sequence[str]) -> None:
        self.take({"event": "loading", "roles": roles})

    def take(self, event: Mapping[str, object]) -> None:
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        self.shown.append(event["event"])

    def close(self) -> None:
        self.take({"event": "close"})


@pytest.mark.parametrize("failure", [FULL, BrokenPipeError(32, "Broken pipe")])
def test_a_node_outlives_its_output_and_says_so_once(failure: OutputLost | BrokenPipeError) -> None:
    inner = Failing(failure, failure, failure, None)
    view = LastingView(inner)
    with capture_logs() as log:
        view.loading(())
        view.take({"event": "ready"})
        view.take({"event": "peer_joined"})
        view.take({"event": "peer_left"})
        view.close()
    assert inner.shown == ["peer_left", "close"]
    told = [line["event"] for line in log if line["event"].startswith("output_")]
    assert told == ["output_lost", "output_back"]


def test_what_is_no_loss_of_output_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        LastingView(Failing(KeyError("x"))).take({"event": "ready"})
