"""What every body and chunk of one request says alike."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShapeFacts:
    """`created` is seconds since 1970; `scored` tells whether tokens come with their scores."""

    identity: str
    created: int
    model: str
    weights_digest: str
    answer_count: int
    prompt_token_count: int
    include_usage: bool
    scored: bool

    def head(self, prefix: str, kind: str) -> dict[str, object]:
        """The first fields; equal fingerprints mean equal weights."""
        return {
            "id": f"{prefix}-{self.identity}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": f"kakeya-{self.weights_digest[:16]}",
        }
