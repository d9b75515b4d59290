"""How to mend what went wrong, by the reason of the error: each reason that people can meet.

The documentation's list of errors is compared with this one.
"""

from __future__ import annotations

_REPORT = "please report it with the node's log"

# Errors whose messages do not say their mend themselves: it is added to them, in place of
# the node's own words, which name no flags.
_ADDED = {
    "ARCHIVE_FULL": "close sessions, or serve more with `fleet join --serve archive=1GiB`",
    "CONTEXT_EXCEEDED": "give a shorter prompt or fewer --max-tokens",
    "DEADLINE_EXCEEDED": "the node may be frozen or busy, `fleet status` on another node tells",
    "DRAINING": "ask another node with --node HOST:PORT",
    "GROUP_LOST": "run it again: another node that serves the model takes it, or the group once "
    "`fleet status` shows it",
    "INVARIANT_VIOLATED": _REPORT,
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
    "WATCHER_TOO_SLOW": "run the command again, and read its output faster",
}

# Errors whose messages end with their mend.
_SAID = {
    "ARCHITECTURE_UNSUPPORTED": "serve a model of a supported architecture, or another --backend",
    "ARCHIVE_NOT_FOUND": "nothing to do: the session makes it anew from its history",
    "BAD_CONFIG": "correct the key, flag or file that the message names",
    "BAD_GROUP": "correct the hostfile, or write one with `fleet hostfile`",
    "BAD_HOSTFILE": "correct the hostfile, or write one with `fleet hostfile`",
    "BAD_MESSAGE": "correct the part that the message names",
    "BAD_PAGE_TOKEN": "list from the first page again",
    "BAD_PROMPTS": 'give one prompt a line, or JSON lines {"prompt": "..."}',
    "BAD_REQUEST": "correct the value that the message names",
    "BAD_ROLE_SPEC": "write roles as `verifier=MODEL`, `proposer=MODEL` or `archive=1GiB`",
    "CANCELLED": "run it again: the node or the network took the call back",
    "CARD_REJECTED": "look at the other node's clock, name and version",
    "CHAT_TEMPLATE_ERROR": "correct the messages, or the template in the model's folder",
    "CHAT_TEMPLATE_NOT_FOUND": "use `fleet chat --plain`, or put chat_template.jinja into the "
    "model's folder",
    "CLIENT_CLOSED": "open a client, and use it within its context",
    "CLONE_YIELDS": "give each node a --state of its own",
    "DASHBOARD_ENDED": "the lines above the message say why; start `fleet dashboard` again",
    "DASHBOARD_FAILED": "the lines above the message say why; start `fleet dashboard` again",
    "DASHBOARD_NOT_BUILT": "build it with `make dashboard`",
    "DRAFT_FAILED": "nothing to do: the verifier goes on alone; the proposer's log says why",
    "EMPTY_APPEND": "append at least one token",
    "EMPTY_HISTORY": "append the prompt before you generate",
    "EMPTY_PROMPT": "give at least one character",
    "ENGINE_ERROR": _REPORT,
    "FAILED_PRECONDITION": "the message says what has to come first",
    "FLEET_ERROR": _REPORT,
    "FLEET_MISMATCH": "join with the other node's --fleet NAME",
    "GROUP_NOT_STARTED": "look at the ranks' output, and that each host of the hostfile answers",
    "HISTORY_LENGTH_MISMATCH": "ask the session for its length, and append what is missing",
    "HOSTFILE_UNWRITABLE": "give --output a file that you may write",
    "IDENTITY_CORRUPT": "put the key back from a copy, or remove it and join as another node",
    "INCARNATION_CORRUPT": "remove the file and the key, then join again as another node",
    "INSECURE_BIND": "bind to loopback, or accept the danger with --insecure",
    "INVALID_ARGUMENT": "correct the value that the message names",
    "KAKEYA_ERROR": _REPORT,
    "KEY_EXPOSED": "give the client `tls`, or ask a node of this machine",
    "LINK_NOT_FOUND": "nothing to do: the caller opens the link again",
    "LINK_UNSUPPORTED": "nothing to do: tensors go by gRPC; update the older node for more",
    "LOOPBACK_BIND": "add `--bind 0.0.0.0:0 --insecure`, or give a peer on 127.0.0.1",
    "MODEL_LOADING": "wait until `fleet top` shows that it is loaded",
    "MODEL_SERVED_ELSEWHERE": "ask the address that the message names; clients follow by "
    "themselves",
    "MODEL_UNUSABLE": "download the model again, or serve another",
    "NODE_AMBIGUOUS": "give the address with --node HOST:PORT, or the start of the node's id",
    "NODE_ERROR": _REPORT,
    "NODE_JS_MISSING": "install Node.js 20 or later",
    "NODE_JS_TOO_OLD": "install Node.js 20 or later",
    "NODE_NOT_FOUND": "see the nodes with `fleet status`",
    "NODE_STARTING": "run it again in a moment",
    "NODE_UNREACHABLE": "start the node with `fleet join`, or name another with --node HOST:PORT",
    "NOT_FOUND": "see what there is with `fleet status`",
    "NO_CHAT_TEMPLATE": "use `fleet chat --plain`, or `fleet generate`",
    "NO_LOCAL_NODE": "start one with `fleet join --serve verifier=tiny`, or give --node HOST:PORT",
    "NO_PLACEMENT": "`fleet plan` tells why each node was rejected",
    "OUT_OF_MEMORY": "serve a smaller model, or one by several machines with --group",
    "OUT_OF_RANGE": "correct the value that the message names",
    "OUTPUT_LOST": "free the disk, or print elsewhere",
    "PERMISSION_DENIED": "run the command on the node's own machine",
    "PORT_IN_USE": "give another --bind, or port 0 for any free one",
    "PROTOCOL_SKEW": "update the older of the two nodes",
    "REFUSED": "the message says why the node refuses",
    "RESOURCE_EXHAUSTED": "try again later",
    "RESTORER_REFUSED": "use another --restorer, and report it with the node's log",
    "RPC_ERROR": "the node's log says more",
    "SESSION_BUSY": "finish or leave the running generation, or fork the session",
    "STATE_EXPOSED": "chmod 700 the directory that the message names",
    "STATE_LOCKED": "end the other agent with `fleet leave`, or give --name or --state",
    "STATE_UNWRITABLE": "make room, or give --state a directory that you may write",
    "STILL_THERE": "end its process by the number that the message names",
    "STREAM_CONSUMED": "start another generation or watch",
    "TENSOR_REFUSED": "nothing to do: the session goes on without; the node's log says why",
    "TEXT_ERROR": "install the extra with `pip install 'kakeya[text]'`",
    "TEXT_EXTRA_MISSING": "pip install 'kakeya[text]'",
    "TOKENIZER_MISMATCH": "copy the model's folder from its node, and name it with --tokenizer",
    "TOKENIZER_NOT_FOUND": "name the folder of the model's tokenizer with --tokenizer PATH",
    "TOO_MANY_LINKS": "nothing to do: tensors go by gRPC until links are closed",
    "TOO_MANY_STREAMS": "nothing to do: the session decodes alone; start another proposer",
    "TRACES_EXTRA_MISSING": "pip install 'kakeya-fleet[traces]'",
    "TRANSPORT_ERROR": "look at the network between the two, and run it again",
    "UNAVAILABLE": "run it again, or ask another node with --node HOST:PORT",
    "UNIMPLEMENTED": "update the node",
    "UNSUPPORTED_CONTENT": "say it in text, or leave the part out",
    "USAGE": "the command's --help tells what it takes",
    "USAGE_ERROR": "the message says how the client is used",
    "WEIGHTS_MISMATCH": "download the model again: its files are not whole",
}

MENDS = _ADDED | _SAID
"""What mends each reason; a few words without a full stop."""


def with_mend(reason: str, message: str, told: str = "") -> str:
    """The message as one sentence that ends with its mend: the terminal's, or the one `told`."""
    mend = _ADDED.get(reason, told)
    if not mend:
        return sentence(message)
    return f"{message.strip().rstrip('.')}; {mend}."


def sentence(message: str) -> str:
    """The message, ended as a sentence is."""
    cause = message.strip().rstrip(".")
    return cause if cause.endswith(("?", "!")) else f"{cause}."
