"""What the node's verifiers measured of codecs; and the way to be rid of it."""

from __future__ import annotations

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.app.roles import Roles


class CodecReport:
    """Belongs to the event loop's thread."""

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    def lines(self) -> list[wire.MeasuredCodec]:
        """By model, then from most bits to fewest; of those that are served now."""
        return self._roles.measured_codecs()

    async def reset(self, model_id: str) -> int:
        """Forgets what was measured of a model, of all with an empty id; how many codecs.

        Raises `ModelNotFound`.
        """
        return await self._roles.reset_codecs(self._digest(model_id))

    def _digest(self, model_id: str) -> str:
        if not model_id:
            return ""
        served = self._roles.verifiers.get(model_id)
        if served is None:
            known = ", ".join(sorted(self._roles.verifiers)) or "none"
            raise ModelNotFound(
                f"no verifier {model_id[:64]!r} is served here; served: {known}",
                model_id=model_id[:64],
                served=known,
            )
        return served.verifier.info.weights_digest
