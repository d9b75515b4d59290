"""What a rank's process is told when it is started: by variables of its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NONCE = "KAKEYA_GROUP_NONCE"
LEADER = "KAKEYA_GROUP_LEADER"
RANK = "KAKEYA_GROUP_RANK"
SIZE = "KAKEYA_GROUP_SIZE"
PORTS = "KAKEYA_GROUP_PORTS"
PARENT = "KAKEYA_GROUP_PARENT"
MLX_RANK = "MLX_RANK"
"""Set by `mlx.launch`, which starts every rank with the same variables otherwise."""


class BadEnvironment(Exception):
    """A variable is missing or wrong: the process was not started by a leader."""


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """Its place, its leader's address and what both know.

    `port_count` free ports of its host are wanted. `parent` is the process that
    it must not outlive, None when the leader is on another host.
    """

    nonce: bytes
    host: str
    port: int
    rank: int
    size: int
    port_count: int
    parent: int | None

    def variables(self) -> dict[str, str]:
        """All but the nonce: command lines can be read by everyone on a host."""
        found = {
            LEADER: f"{self.host}:{self.port}",
            RANK: str(self.rank),
            SIZE: str(self.size),
            PORTS: str(self.port_count),
        }
        return found if self.parent is None else {**found, PARENT: str(self.parent)}

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> RankEnvironment:
        """What the leader set. Raises `BadEnvironment`."""
        try:
            host, _, port = environment[LEADER].rpartition(":")
            parent = environment.get(PARENT)
            return cls(
                nonce=bytes.fromhex(environment[NONCE]),
                host=host,
                port=int(port),
                rank=int(environment[RANK] if RANK in environment else environment[MLX_RANK]),
                size=int(environment[SIZE]),
                port_count=int(environment[PORTS]),
                parent=int(parent) if parent is not None else None,
            )
        except (KeyError, ValueError) as error:
            raise BadEnvironment(f"the leader of a group starts this, not a person: {error}") from (
                error
            )
