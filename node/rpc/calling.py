"""Who makes the present call, and so whose sessions it can see."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.node.admission.caller import THIS_MACHINE, Caller, caller_of_peer


@dataclass(frozen=True, slots=True)
class Calling:
    """`caller` has sessions and a share; one that `observes` is told how much others do, too.

    That is counts and times of sessions, in lists and watches, never a token of them.
    """

    caller: Caller
    observes: bool = False
    key: ApplicationKey | None = None
    """Of an application of a fleet with an authority: its limits count."""


proven: ContextVar[Calling | None] = ContextVar("proven", default=None)
"""What `Authorisation` found, in a fleet with an authority; None in others."""


class Peer(Protocol):
    """The context of a call, of either kind of server."""

    def peer(self) -> str:
        """Where it comes from, in gRPC's words."""
        ...


def calling_of(context: Peer) -> Calling:
    """Who calls. Without an authority a connection proves no more than its address.

    Programs of this machine are then those of whoever runs the node.
    """
    found = proven.get()
    if found is not None:
        return found
    caller = caller_of_peer(context.peer())
    return Calling(caller, observes=caller == THIS_MACHINE)
