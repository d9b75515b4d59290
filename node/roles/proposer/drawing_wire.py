"""How a verifier draws, as a draft stream says it."""

from __future__ import annotations

from kakeya.v1 import proposer_pb2 as wire
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.choice import SamplingParameters


def drawing_to_wire(drawing: Drawing) -> wire.Drawing:
    """Its message."""
    return wire.Drawing(
        temperature=drawing.temperature,
        seed=drawing.seed,
        top_p=drawing.top_p,
        top_k=drawing.top_k,
        min_p=drawing.min_p,
    )


def drawing_of(proposal: wire.DraftProposal) -> Drawing | None:
    """What `proposal` says; None for a verifier that is greedy. Raises `BadParameters`."""
    if not proposal.HasField("drawing"):
        return None
    said = proposal.drawing
    parameters = SamplingParameters(
        temperature=said.temperature,
        seed=said.seed,
        top_p=said.top_p,
        top_k=said.top_k,
        min_p=said.min_p,
    )
    if parameters.drawing is None:
        raise BadParameters(
            "drawing.temperature is 0; leave drawing away for greedy text", field="drawing"
        )
    return parameters.drawing
