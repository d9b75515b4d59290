"""The metrics as text."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """All samples of now, and their content type.

    OpenMetrics when the Accept header asks for it, else Prometheus' own text format.
    """
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
