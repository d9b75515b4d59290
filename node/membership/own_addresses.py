"""Where this node answers, as its machine's interfaces are now."""

from __future__ import annotations

from kakeya_fleet.fleet.cards.ways import ip_of
from kakeya_fleet.node.config.config import is_loopback, join_address
from kakeya_fleet.node.membership.network import ANY, addresses_of, is_own_address


class OwnAddresses:
    """The addresses of a server that is bound to `bound`, a host, at `port`.

    Of one that is bound to 0.0.0.0 or :: they are those of the interfaces, and change with them.
    """

    def __init__(self, bound: str, port: int) -> None:
        """Raises `BadConfig` when the host's name does not resolve."""
        self._bound = bound
        self._port = port
        self._hosts = addresses_of(bound)

    @property
    def hosts(self) -> tuple[str, ...]:
        """IP addresses, the best first; loopback where there is no other."""
        return self._hosts

    @property
    def addresses(self) -> tuple[str, ...]:
        """The same as host:port."""
        return tuple(join_address(host, self._port) for host in self._hosts)

    @property
    def follows(self) -> bool:
        """Whether they change with the interfaces."""
        return self._bound in ANY

    @property
    def stays_here(self) -> bool:
        """Whether its own machine alone ever reaches it."""
        return not self.follows and all(map(is_loopback, self._hosts))

    def look(self) -> bool:
        """Looks at the interfaces; whether the addresses are others now.

        While the machine is on no network the last ones stay: nobody could be told of others.
        """
        if not self.follows:
            return False
        found = addresses_of(self._bound)
        if found == self._hosts or all(map(is_loopback, found)):
            return False
        self._hosts = found
        return True

    def lost(self) -> str:
        """The IP address that the server is bound to and that this machine has no more, or ""."""
        if self.follows or ip_of(self._bound) is None or is_own_address(self._bound):
            return ""
        return self._bound
