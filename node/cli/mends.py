"""How to mend what a node refused, by the reason of its error."""

from __future__ import annotations

_MENDS = {
    "ARCHIVE_FULL": "close sessions, or serve more with `fleet join --serve archive=1GiB`",
    "CONTEXT_EXCEEDED": "give a shorter prompt or fewer --max-tokens",
    "DEADLINE_EXCEEDED": "the node may be frozen or busy, `fleet status` on another node tells",
    "DRAINING": "ask another node with --node HOST:PORT",
    "GROUP_LOST": "run it again: another node that serves the model takes it, or the group once "
    "`fleet status` shows it",
    "INVARIANT_VIOLATED": "please report it with the node's log",
    "KV_STRATEGY_UNSUPPORTED": "choose another --kv-strategy",
    "MODEL_NOT_FOUND": "`fleet join --serve verifier=MODEL` or `proposer=MODEL` serves one more",
    "NO_ARCHIVE": "see the archives with `fleet status`",
    "NOT_LOOPBACK": "run the command on the node's own machine",
    "OUT_OF_KV_MEMORY": "close sessions, give a smaller --window, or try again later",
    "RESTORER_LOST": "start an archive with `fleet join --serve archive=1GiB`, then run it again",
    "RESTORER_MISMATCH": "serve the same drafter on both nodes, or use --restorer archive",
    "SESSION_NOT_FOUND": "run the command again",
    "TOKEN_OUT_OF_VOCABULARY": "name the model's own tokenizer with --tokenizer PATH",
    "TRAINED_FOR_ANOTHER": "name the drafter that was trained for this verifier",
    "UNEXPECTED_ERROR": "the node's log says more",
}


def with_mend(reason: str, message: str) -> str:
    """The message as one sentence that ends with its mend, where one is known."""
    mend = _MENDS.get(reason)
    if mend is None:
        return sentence(message)
    return f"{message.strip().rstrip('.')}; {mend}."


def sentence(message: str) -> str:
    """The message, ended as a sentence is."""
    cause = message.strip().rstrip(".")
    return cause if cause.endswith(("?", "!")) else f"{cause}."
