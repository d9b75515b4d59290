"""Why a service of this node refuses a call, beyond what engine and fleet refuse.

Refusal
├── ModelServedElsewhere  another live node serves the model; metadata has its address
├── ModelLoading          the model is still being loaded here
├── TokenizerNotFound     the model is served without a tokenizer that could be sent
├── Draining              the node leaves; resume elsewhere
├── TooManyCalls          the node answers as many calls, or keeps as many bytes, as it may
├── TooBusy              so much work waits that a generation could not begin in time
├── AnswerTooLarge        the answer does not fit a message, and was not asked for in parts
├── WorkerFault           the model's thread failed before a step ran
├── TooManyStreams        the proposer's limit of draft streams is reached
├── TokenizerDiffers      the proposer drafts ids of another tokenizer
├── LinkUnsupported       nodes of this version open no such tensor link
├── LinkNotFound          the tensor link is closed, or was never open
├── TooManyLinks          the node serves as many tensor links as it may
├── NoArchive             no live node has an archive for the session
├── ArchiveFull           the archive has no room for one more session, or for its positions
├── ArchiveNotFound       the archive is unknown, expired, released or in use
├── RestorerMismatch      the learned map here is another than the session's
├── BadPageToken          the page token is not one of ours
├── TooManyLoads         as many models wait to be loaded as may
├── TooManyPulls          as many models are pulled as may be
├── TooManyReads          as many pieces of models are read as may be
├── ModelNotCopied        no source of a model's files is left
├── TooManyProbes        a host asks too often for probes of third nodes
├── WatcherTooSlow        a watcher of the fleet fell behind
├── NotLoopback           the call is for programs on this machine only
├── NotPermitted          the call is for others than its caller
├── ForkBeyondHistory     a fork asked for more tokens than the history has
├── CorruptFrame          a frame arrived with other bytes than were sent, or out of its place
└── MalformedMessage      the bytes are no message of the contract

Each has a `reason` in UPPER_SNAKE_CASE, which is the ErrorInfo reason on the
wire, and `metadata` for programs.
"""

from __future__ import annotations

from typing import ClassVar


class Refusal(Exception):
    """Base of the refusals; the message is meant for people."""

    reason: ClassVar[str] = "REFUSED"

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.metadata = metadata


class ModelServedElsewhere(Refusal):
    """Another live node serves the model; metadata has `address` and `node_id`."""

    reason = "MODEL_SERVED_ELSEWHERE"


class ModelLoading(Refusal):
    """The model is still being loaded here; metadata has `retry_after_seconds`."""

    reason = "MODEL_LOADING"


class TokenizerNotFound(Refusal):
    """The model is served without a tokenizer that could be sent."""

    reason = "TOKENIZER_NOT_FOUND"


class Draining(Refusal):
    """The node leaves the fleet and takes no new work."""

    reason = "DRAINING"


class TooManyCalls(Refusal):
    """The node answers as many calls as it may, or the caller has its share of them."""

    reason = "TOO_MANY_CALLS"


class WorkerFault(Refusal):
    """The model's thread failed before a step ran; the session is as it was, the thread goes on."""

    reason = "WORKER_FAULT"


class TooManySessions(Refusal):
    """The node keeps as many sessions as it may, or the caller has its share of them."""

    reason = "TOO_MANY_SESSIONS"


class TooBusy(Refusal):
    """A generation could not begin before its deadline; metadata has `retry_after_seconds`."""

    reason = "TOO_BUSY"


class AnswerTooLarge(Refusal):
    """The answer does not fit a message, and was not asked for in parts."""

    reason = "ANSWER_TOO_LARGE"


class TooManyStreams(Refusal):
    """The proposer serves as many draft streams as it may."""

    reason = "TOO_MANY_STREAMS"


class TokenizerDiffers(Refusal):
    """The proposer's tokenizer is another than the verifier's."""

    reason = "BAD_REQUEST"


class LinkUnsupported(Refusal):
    """Nodes of this version open no tensor links for that purpose or transport."""

    reason = "LINK_UNSUPPORTED"


class LinkNotFound(Refusal):
    """The tensor link is closed, or was never open."""

    reason = "LINK_NOT_FOUND"


class TooManyLinks(Refusal):
    """The node serves as many tensor links, or as many bytes for them, as it may."""

    reason = "TOO_MANY_LINKS"


class TensorOutOfOrder(Refusal):
    """Chunks of tensors that do not follow each other: stream and link end."""

    reason = "TENSOR_REFUSED"


class NoArchive(Refusal):
    """No live node has an archive that can take the session."""

    reason = "NO_ARCHIVE"


class ArchiveFull(Refusal):
    """The archive has no room; metadata has `needed_bytes` and `free_bytes`."""

    reason = "ARCHIVE_FULL"


class ArchiveNotFound(Refusal):
    """The archive is unknown, has expired, was released, or another stream uses it."""

    reason = "ARCHIVE_NOT_FOUND"


class RestorerMismatch(Refusal):
    """The learned map here is another than the session's; metadata has both digests."""

    reason = "RESTORER_MISMATCH"


class BadPageToken(Refusal):
    """The page token did not come from this node's last page."""

    reason = "BAD_PAGE_TOKEN"


class ForkBeyondHistory(Refusal):
    """A fork asked for more tokens than the history has."""

    reason = "HISTORY_LENGTH_MISMATCH"


class MalformedMessage(Refusal):
    """The bytes do not parse as the message that the method takes."""

    reason = "BAD_REQUEST"


class TooManyProbes(Refusal):
    """A host asks too often for probes of third nodes."""

    reason = "RESOURCE_EXHAUSTED"


class TooManyLoads(Refusal):
    """As many models are loaded, or wait for it, as may."""

    reason = "RESOURCE_EXHAUSTED"


class TooManyPulls(Refusal):
    """As many models are pulled as may be."""

    reason = "RESOURCE_EXHAUSTED"


class TooManyReads(Refusal):
    """As many pieces of models are read as may be, or the caller has its share of them."""

    reason = "RESOURCE_EXHAUSTED"


class ModelNotCopied(Refusal):
    """No source of a model's files is left; what came is kept, as `kept_bytes` says."""

    reason = "MODEL_NOT_COPIED"


class CorruptFrame(Refusal):
    """A frame of a data connection arrived with other bytes than were sent, or out of its place."""

    reason = "FRAME_CORRUPT"


class WatcherTooSlow(Refusal):
    """A watcher of the fleet fell behind; watch again for a new snapshot."""

    reason = "WATCHER_TOO_SLOW"


class NotPermitted(Refusal):
    """The call is for others than its caller, in a fleet with an authority."""

    reason = "NOT_PERMITTED"


class NotLoopback(Refusal):
    """The call is for programs on this machine only."""

    reason = "NOT_LOOPBACK"
