"""Links' messages as they travel: from and to the contract's types."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya.v1 import capability_pb2, placement_pb2
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.node.links.protocol.contract import LinkPurpose, LinkState, RoadKind
from kakeya_fleet.node.links.protocol.messages import (
    Announcement,
    Chunk,
    Message,
    RoadMessage,
    RoadStep,
    Taken,
    TensorHead,
)
from kakeya_fleet.node.links.protocol.opening import EncoderDescription, LinkRequest
from kakeya_fleet.node.links.protocol.tensor import TensorDtype
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

Envelope = wire.StreamTensorsRequest | wire.StreamTensorsResponse
"""One message of a stream."""

PURPOSES: dict[LinkPurpose, wire.LinkPurpose.ValueType] = {
    LinkPurpose.FEATURES: wire.LINK_PURPOSE_FEATURES,
}
TRANSPORTS: dict[RoadKind, placement_pb2.Transport.ValueType] = {
    RoadKind.GRPC: placement_pb2.TRANSPORT_GRPC,
    RoadKind.LOCAL: placement_pb2.TRANSPORT_LOCAL,
    RoadKind.RING: placement_pb2.TRANSPORT_RING,
}
DTYPES: dict[TensorDtype, wire.TensorDtype.ValueType] = {
    TensorDtype.FLOAT32: wire.TENSOR_DTYPE_FLOAT32,
    TensorDtype.BFLOAT16: wire.TENSOR_DTYPE_BFLOAT16,
    TensorDtype.FLOAT16: wire.TENSOR_DTYPE_FLOAT16,
    TensorDtype.INT8: wire.TENSOR_DTYPE_INT8,
}
_STEPS: dict[RoadStep, wire.RoadStep.ValueType] = {
    RoadStep.PROPOSE: wire.ROAD_STEP_PROPOSE,
    RoadStep.ANSWER: wire.ROAD_STEP_ANSWER,
    RoadStep.READY: wire.ROAD_STEP_READY,
    RoadStep.FAILED: wire.ROAD_STEP_FAILED,
}
_PURPOSES_FROM_WIRE = {wired: purpose for purpose, wired in PURPOSES.items()}
_KINDS_FROM_WIRE = {wired: kind for kind, wired in TRANSPORTS.items()}
_DTYPES_FROM_WIRE = {wired: dtype for dtype, wired in DTYPES.items()}
_STEPS_FROM_WIRE = {wired: step for step, wired in _STEPS.items()}


def message_to_wire(message: Message, envelope: Envelope) -> None:
    """Fills in an empty envelope."""
    match message:
        case Chunk():
            chunk = envelope.chunk
            chunk.link_id = message.link_id
            chunk.tensor_id = message.tensor_id
            chunk.offset_bytes = message.offset
            chunk.data = message.data
            chunk.crc32c = message.crc32c
            if message.head is not None:
                _head_to_wire(message.head, chunk)
        case Announcement():
            announcement = envelope.announcement
            announcement.tensor_id = message.tensor_id
            announcement.crc32c = message.crc32c
            announcement.generation = message.generation
            _head_to_wire(message.head, announcement)
        case Taken():
            envelope.taken.through_tensor_id = message.through
        case RoadMessage():
            road = envelope.road
            road.generation = message.generation
            road.step = _STEPS[message.step]
            if message.kind is not None:
                road.transport = TRANSPORTS[message.kind]
            road.nonce = message.nonce
            road.terms.update(message.terms)
            road.reason = message.reason
            road.through_tensor_id = message.through


def message_from_wire(envelope: Envelope) -> Message:
    """The message. Raises `BadParameters` for none, `TensorOutOfOrder` for one that cannot be."""
    if envelope.HasField("chunk"):
        chunk = envelope.chunk
        return Chunk(
            link_id=chunk.link_id,
            tensor_id=chunk.tensor_id,
            offset=chunk.offset_bytes,
            # Each access copies it.
            data=chunk.data,
            crc32c=chunk.crc32c,
            head=_head_from_wire(chunk) if chunk.offset_bytes == 0 else None,
        )
    if envelope.HasField("taken"):
        return Taken(envelope.taken.through_tensor_id)
    if envelope.HasField("announcement"):
        announcement = envelope.announcement
        return Announcement(
            announcement.tensor_id,
            _head_from_wire(announcement),
            announcement.crc32c,
            announcement.generation,
        )
    if envelope.HasField("road"):
        return _road_from_wire(envelope.road)
    raise BadParameters("a stream of tensors takes chunks after its opening")


def _road_from_wire(message: wire.RoadMessage) -> RoadMessage:
    step = _STEPS_FROM_WIRE.get(message.step)
    if step is None:
        raise TensorOutOfOrder(f"step {message.step} of a road is not one of the other end's")
    return RoadMessage(
        generation=message.generation,
        step=step,
        kind=_KINDS_FROM_WIRE.get(message.transport),
        nonce=message.nonce,
        terms=dict(message.terms),
        reason=message.reason,
        through=message.through_tensor_id,
    )


def _head_to_wire(head: TensorHead, said: wire.TensorChunk | wire.TensorAnnouncement) -> None:
    said.name = head.name
    said.dtype = DTYPES[head.dtype]
    said.shape.extend(head.shape)
    said.first_position = head.first_position


def _head_from_wire(said: wire.TensorChunk | wire.TensorAnnouncement) -> TensorHead:
    dtype = _DTYPES_FROM_WIRE.get(said.dtype)
    if dtype is None:
        raise TensorOutOfOrder("the first chunk of a tensor says its name, format and sizes")
    return TensorHead(said.name, dtype, tuple(said.shape), said.first_position)


def request_to_wire(
    request: LinkRequest, transports: list[placement_pb2.Transport.ValueType]
) -> wire.OpenLinkRequest:
    """The request of a node that can use `transports`, best first."""
    return wire.OpenLinkRequest(
        sender_node_id=request.sender_node_id,
        purpose=PURPOSES[request.purpose],
        transports=transports,
        model_id=request.model_id,
        verifier_weights_digest=request.verifier_weights_digest,
    )


def request_from_wire(request: wire.OpenLinkRequest) -> LinkRequest | None:
    """The request; None for a purpose that is unknown here."""
    purpose = _PURPOSES_FROM_WIRE.get(request.purpose)
    if purpose is None:
        return None
    return LinkRequest(
        purpose=purpose,
        sender_node_id=request.sender_node_id,
        model_id=request.model_id,
        verifier_weights_digest=request.verifier_weights_digest,
    )


def kinds_from_wire(
    transports: Iterable[placement_pb2.Transport.ValueType],
) -> frozenset[RoadKind]:
    """What the other node can use, of what is known here."""
    return frozenset(_KINDS_FROM_WIRE[each] for each in transports if each in _KINDS_FROM_WIRE)


def encoder_to_wire(encoder: EncoderDescription) -> wire.EncoderDescription:
    """The description that OpenLink answers with."""
    return wire.EncoderDescription(
        digest=encoder.digest,
        tapped_layers=encoder.tapped_layers,
        hidden_size=encoder.hidden_size,
        width=encoder.width,
        eps=encoder.eps,
    )


def encoder_from_wire(encoder: wire.EncoderDescription) -> EncoderDescription:
    """What OpenLink said of the encoder."""
    return EncoderDescription(
        digest=encoder.digest,
        tapped_layers=tuple(encoder.tapped_layers),
        hidden_size=encoder.hidden_size,
        width=encoder.width,
        eps=encoder.eps,
    )


def status_to_wire(
    state: LinkState, purpose: LinkPurpose, peer_node_id: str, *, is_caller: bool, now: float
) -> capability_pb2.TensorLinkStatus:
    """An open link as GetNode tells it; `now` in the seconds of the state's clock."""
    return capability_pb2.TensorLinkStatus(
        peer_node_id=peer_node_id,
        purpose=PURPOSES[purpose],
        transport=TRANSPORTS[state.kind],
        generation=state.generation,
        bytes_per_second=state.bytes_per_second,
        reason=state.reason,
        changed_seconds_ago=max(0.0, now - state.changed_at),
        is_caller=is_caller,
        tensor_count=state.tensor_count,
        byte_count=state.byte_count,
        demotion_count=state.demotion_count,
    )
