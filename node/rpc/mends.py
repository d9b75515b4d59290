"""What mends a refusal, for the reasons whose messages say only the cause.

In the words of the contract, since an application reads them as well as a person:
the terminal has its own, with its flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

MENDS: Mapping[str, str] = MappingProxyType(
    {
        "ARCHIVE_FULL": "close sessions, or serve more: fleet join --serve archive=1GiB",
        "CONTEXT_EXCEEDED": "give a shorter prompt, or generate fewer tokens",
        "DRAINING": "ask another node that serves the model",
        "GROUP_LOST": "open a session with its tokens again: on another node, or here once the "
        "group is back",
        "INVARIANT_VIOLATED": "open a session with its tokens elsewhere, and report it with the "
        "node's log",
        "KV_STRATEGY_UNSUPPORTED": "open the session with another K/V strategy",
        "MODEL_NOT_FOUND": "serve it: fleet join --serve verifier=MODEL",
        "NO_ARCHIVE": "join a node that keeps for others: fleet join --serve archive=1GiB",
        "NOT_LOOPBACK": "call it on the node's own machine",
        "OUT_OF_KV_MEMORY": "close sessions, open this one with sink_window or a smaller window, "
        "or try again later",
        "RESTORER_LOST": "start an archive, then try again: fleet join --serve archive=1GiB",
        "RESTORER_MISMATCH": "serve the same drafter on both nodes, or restore by an archive",
        "SESSION_NOT_FOUND": "open a session with its tokens again",
        "TOKEN_OUT_OF_VOCABULARY": "encode with the model's own tokenizer",
        "TRAINED_FOR_ANOTHER": "name the drafter that was trained for this verifier",
        "WATCHER_TOO_SLOW": "watch again, and read faster",
    }
)
"""By `reason`; a few words without a full stop."""
