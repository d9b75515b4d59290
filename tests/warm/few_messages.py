"""A pytest plugin: of a test that passes, xdist's workers tell no more than that.

xdist has a message for a test's start, one for each of its three phases and two for its end, of
which a run needs three. The others take half a millisecond of processors, for thousands of tests of
which most take ten. What set-up and clean-up took is not known without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest

NOT_TOLD: dict[str, object] = {"$report_type": "passed by the way"}


class _Interactor(Protocol):
    """What xdist's worker speaks to the run by."""

    sendevent: Callable[..., None]


@pytest.hookimpl(tryfirst=True)
def pytest_report_to_serializable(report: object) -> dict[str, object] | None:
    """Nothing of a phase around a test that passed."""
    if isinstance(report, pytest.TestReport) and report.passed and report.when != "call":
        return dict(NOT_TOLD)
    return None


def pytest_configure(config: pytest.Config) -> None:
    """In a worker: leaves the messages out."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            leave_out(plugin)


def leave_out(interactor: _Interactor) -> None:
    """Its messages are sent, but for those."""
    send = interactor.sendevent

    def sent(name: str, **told: object) -> None:
        data = told.get("data")
        passed_by = isinstance(data, dict) and NOT_TOLD.items() <= data.items()
        if name != "logstart" and not passed_by:
            send(name, **told)

    interactor.sendevent = sent
