"""What a verifier's codecs were measured to be, as it travels."""

from __future__ import annotations

import math

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.node.planning.codec_ledger import Rung, model_key
from kakeya_fleet.node.planning.kv_quality import bits_of, quality_to_wire
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier


def codec_to_wire(model_id: str, served: ServedVerifier, rung: Rung) -> wire.MeasuredCodec:
    """One codec of one model."""
    model, found = model_key(served.verifier.info), rung.divergence
    return wire.MeasuredCodec(
        model_id=model_id,
        weights_digest=model.weights_digest,
        arithmetic=model.arithmetic,
        codec=rung.codec,
        bits=bits_of(rung.codec),
        position_count=found.count,
        divergence_nats=found.mean,
        error_nats=found.error if math.isfinite(found.error) else 0.0,
        qualities=[quality_to_wire(quality) for quality in rung.qualities],
        reasons=rung.reasons,
        measured_at_unix=rung.measured_at,
        is_settled=found.is_settled,
    )
