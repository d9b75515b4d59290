"""What went wrong, in a sentence that ends with what mends it."""

from __future__ import annotations

from kakeya_fleet.node.rpc.error_reasons import REASONS


def with_remedy(reason: str, message: str, told: str = "") -> str:
    """The message as one sentence that ends with its remedy: the terminal's, or the one `told`.

    The node's own words name no flags, but stand for a reason that is not known here.
    """
    known = REASONS.get(reason)
    remedy = known.terminal_remedy if known is not None and known.terminal_remedy else told
    if not remedy:
        return sentence(message)
    return f"{message.strip().rstrip('.')}; {remedy}."


def sentence(message: str) -> str:
    """The message, ended as a sentence is."""
    cause = message.strip().rstrip(".")
    return cause if cause.endswith(("?", "!")) else f"{cause}."
