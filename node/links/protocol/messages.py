"""What the two ends of a link tell each other on its control stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor


@dataclass(frozen=True, slots=True)
class TensorHead:
    """What is said of a tensor beside its bytes."""

    name: str
    dtype: TensorDtype
    shape: tuple[int, ...]
    first_position: int = 0

    def with_bytes(self, data: bytes | memoryview) -> WireTensor:
        """The tensor, of as many bytes as the sizes say."""
        return WireTensor(self.name, self.dtype, self.shape, data, self.first_position)


def head_of(tensor: WireTensor) -> TensorHead:
    """A tensor's head."""
    return TensorHead(tensor.name, tensor.dtype, tensor.shape, tensor.first_position)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a tensor, from byte `offset` on; the first has the `head`."""

    link_id: str
    tensor_id: int
    offset: int
    data: bytes
    crc32c: int
    head: TensorHead | None = None


@dataclass(frozen=True, slots=True)
class Announcement:
    """A tensor whose bytes come over the road of a generation, and their checksum."""

    tensor_id: int
    head: TensorHead
    crc32c: int
    generation: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Every tensor up to this has arrived."""

    through: int


class RoadStep(StrEnum):
    """The steps of agreeing on a road, and of leaving it."""

    PROPOSE = "propose"
    ANSWER = "answer"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RoadMessage:
    """One step of the road of a generation; 0 is the stream itself.

    PROPOSE has the `kind`, None for one that is unknown here, a `nonce` that the road
    must prove, and `terms`; ANSWER has terms; FAILED has a `reason`, and `through`: every tensor
    up to this has arrived. FAILED of generation 0 asks for the tensor behind `through` again,
    which came corrupt.
    """

    generation: int
    step: RoadStep
    kind: RoadKind | None = None
    nonce: bytes = b""
    terms: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    through: int = 0


Message = Chunk | Announcement | Taken | RoadMessage
