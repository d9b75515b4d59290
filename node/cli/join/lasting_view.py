"""A running agent's view whose output may be lost: the node goes on without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from kakeya_fleet.node.cli.join.agent_view import Event, View
from kakeya_fleet.node.cli.terminal.streams import OutputLost

_log = structlog.get_logger(__name__)


class LastingView:
    """Shows what `view` shows, as long as that can be written, and again once it can.

    The log has a line when the output is lost, and one when it is back.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._is_lost = False

    def loading(self, roles: Sequence[str]) -> None:
        """The agent loads what it serves."""
        self._write(lambda: self._view.loading(roles))

    def take(self, event: Event) -> None:
        """Something happened."""
        self._write(lambda: self._view.take(event))

    def close(self) -> None:
        """The agent ended."""
        self._write(self._view.close)

    def _write(self, show: Callable[[], None]) -> None:
        try:
            show()
        except (OutputLost, BrokenPipeError) as error:
            if not self._is_lost:
                _log.warning("output_lost", cause=str(error), mend="the node goes on")
            self._is_lost = True
        else:
            if self._is_lost:
                _log.warning("output_back")
            self._is_lost = False
