"""Who could draft for a verifier that is served from now on, and whether somebody has to be loaded.

Who drafts for a session is the planner's choice, and the session's own: here it is seen to that
there is somebody to choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Drafter:
    """A proposer that `node` serves under `name`, or that a node could load if that is empty.

    It drafts for the one verifier of `target_digest`, of its weights; if that is empty for those
    with the tokenizer of `tokenizer_digest`, and if that is empty too for every one.
    """

    name: str
    node: str = ""
    target_digest: str = ""
    tokenizer_digest: str = ""

    def fits(self, weights_digest: str, tokenizer_digest: str) -> bool:
        """Whether it drafts for the verifier with these digests."""
        if self.target_digest:
            return self.target_digest == weights_digest
        return self.tokenizer_digest in ("", tokenizer_digest)

    @property
    def how_near(self) -> int:
        """How closely it was made for its verifier, the closest first: by it, its text, nothing."""
        return 0 if self.target_digest else 1 if self.tokenizer_digest else 2


def first_drafter(
    weights_digest: str,
    tokenizer_digest: str,
    served: Iterable[Drafter],
    loadable: Iterable[Drafter],
) -> Drafter | None:
    """One that drafts for the verifier with these digests: served, or else to be loaded.

    Of several the one that was made for it, then one of its tokenizer; None where none fits.
    """
    for known in (served, loadable):
        fitting = [each for each in known if each.fits(weights_digest, tokenizer_digest)]
        if fitting:
            return min(fitting, key=lambda each: (each.how_near, each.name, each.node))
    return None
