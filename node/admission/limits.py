"""Every bound on what others may have of a node, in one place, each with its formula or reason.

`fleet limits` shows them, with what is taken of each. What callers share ends in a fifth that is
kept for those who hold little (`node.admission.share`), so a bound of 320 lets one caller
alone have 256.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from kakeya_fleet.fleet.cards.rules import MAX_ADDRESSES, MAX_CARD_BYTES, MAX_MODELS
from kakeya_fleet.fleet.membership.digest import MAX_DIGEST_LINES
from kakeya_fleet.fleet.membership.reconciliation import (
    MAX_CARD_BYTES_A_MESSAGE,
    MAX_CARDS_A_MESSAGE,
    MAX_RUMOURS_A_MESSAGE,
    MAX_WANTED_KEYS,
)
from kakeya_fleet.fleet.membership.registry import MAX_NODES
from kakeya_fleet.fleet.membership.state import MAX_SEEDS
from kakeya_fleet.fleet.trust.invitation import LIFETIME_SECONDS, MOST_OPEN, TRIES
from kakeya_fleet.node.admission.knob import Knob, knob, knobs

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Descriptors of the process: each connection takes one, and each file that is read."""

    descriptors: int = knob(
        1 << 16,
        "The soft limit is raised so far, or to the system's hard limit. An eighth, 64 at least "
        "and half at most, is the node's own: connections of others are ended when they hold it.",
    )


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Calls of gRPC, each from its headers to its end; a stream is one call."""

    at_once: int = knob(
        2560,
        "2,048 of one caller, such as a host with 1,000 watches and as many generations, and a "
        "fifth for others. A call takes some 30 KiB: 80 MiB together.",
    )
    control: int = knob(
        320,
        "Gossip, probes, health and GetNode, and calls that give something back, such as "
        "CloseSession, besides all others: two from each of 128 peers in a period, and a fifth "
        "for others.",
    )
    request_seconds: float = knob(
        40.0, "From a call's headers to its one request: 4 MiB at 1 Mbit/s take 34 s."
    )
    control_request_seconds: float = knob(
        10.0, "The same of a control call: 1 MiB at 1 Mbit/s takes 8 s."
    )
    requests_bytes: int = knob(
        256 * MIB,
        "Requests of calls until they are answered, as their bytes came: 64 of the longest, "
        "which ids of tokens make four times as long in memory.",
    )
    control_bytes: int = knob(
        64 * MIB, "The same of control calls: a card has some KiB, and a message 1 MiB at most."
    )
    in_flight: int = knob(
        12_800,
        "At which gRPC itself refuses, without a reason: four times the calls that are answered, "
        "for those that are being refused by name.",
    )


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client of HTTP may take, and for how long."""

    body_bytes: int = knob(8 * MIB, "Longest body of a request, decompressed.")
    body_values: int = knob(
        1 << 18,
        "Of JSON in one body, ids of tokens and keys among them: more take longer to parse than "
        "the event loop may stand still, 100 ms.",
    )
    bodies_bytes: int = knob(
        256 * MIB, "Bodies of all requests, until they are answered: 32 of the longest."
    )
    body_seconds: float = knob(30.0, "From a request's headers to the end of its body.")
    header_seconds: float = knob(
        10.0, "From a connection, or a byte of its next request, to the end of the headers."
    )
    idle_seconds: float = knob(75.0, "A connection without a request is kept so long.")
    connections: int = knob(
        640,
        "512 of one caller and a fifth for others. When all are taken, one that says nothing is "
        "closed for a new one.",
    )
    requests: int = knob(
        80, "Requests of /v1 that are answered at once: 64 of one caller and a fifth for others."
    )
    kept_sessions: int = knob(
        80,
        "Of answered chats, with which their next turn goes on: as many as requests that are "
        "answered at once. Their keys and values make way at once for any other session's.",
    )
    kept_bytes: int = knob(
        64 * MIB,
        "Ids of their histories, 4 bytes each: 200,000 tokens in each of 80 sessions.",
    )
    kept_seconds: float = knob(
        900.0, "Without a next turn, half of what an idle session has on its node."
    )
    keep_alive_seconds: float = knob(10.0, "A stream that says nothing for so long has a comment.")
    write_seconds: float = knob(
        30.0, "A client that takes nothing for so long is cut off, and its session closed."
    )
    close_seconds: float = knob(
        2.0, "What running requests get when the node leaves, after generations were drained."
    )


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Sessions that a node keeps, of all its verifiers."""

    at_once: int = knob(
        12_800,
        "10,240 of one caller and a fifth for others, besides what their keys and values take of "
        "the K/V budget. When all are taken, one that is idle for a minute is ended for a new "
        "one; it goes on with its history in another.",
    )


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """Draft streams that a proposer serves."""

    streams: int = knob(320, "At once: 256 of one caller and a fifth for others.")
    opening_seconds: float = knob(
        10.0, "A stream that says nothing for so long holds one of the places no more."
    )
    waiting_proposals: int = knob(
        64, "Of one stream, without their blocks; the speculative loop has two at most."
    )
    waiting_bytes: int = knob(
        128 * MIB,
        "Of all streams: 1 KiB a proposal, 4 bytes an id, and keys and values on their way, 2 MiB "
        "of a session's at once. A proposal has the tokens since the one before it, so that 1,000 "
        "streams take 2 MiB.",
    )
    history_tokens: int = knob(
        1 << 21,
        "Of one stream, prefix and all that it commits: beyond every model's positions.",
    )
    history_bytes: int = knob(
        1 << 30,
        "Of all streams: 40 bytes an id, so that one caller has 80,000 ids in each of 256 streams.",
    )


@dataclass(frozen=True, slots=True)
class LinkServingLimits:
    """Tensor links that a node serves, and how long it waits for their callers."""

    at_once: int = knob(
        320, "One a draft stream that wants context vectors: 256 of one caller, a fifth for others."
    )
    memory_bytes: int = knob(1 << 30, "That all links may take together.")
    idle_seconds: float = knob(
        300.0, "A link on which nothing arrives for so long belongs to nobody any more."
    )
    unclaimed_seconds: float = knob(
        10.0,
        "From OpenLink to its stream, which takes a round trip: one that never comes must not "
        "keep a place from others.",
    )
    opening_seconds: float = knob(10.0, "From a stream's begin to its first message.")
    handler_seconds: float = knob(
        1.0, "What a handler gets to end by itself once its link has ended."
    )


@dataclass(frozen=True, slots=True)
class LinkEndLimits:
    """One end of a tensor link, of those that this node opens and of those that it serves."""

    budget_bytes: int = knob(
        64 * MIB,
        "Sent that may not have arrived, and as much that arrived and nobody received: the "
        "largest tensor, once each way.",
    )
    tensor_bytes: int = knob(
        64 * MIB, "The largest tensor that is taken, where what the link is for says no less."
    )
    vectors_bytes: int = knob(
        16 * MIB,
        "Context vectors that a proposer's node does not take: five windows of 3 MB of a wide "
        "encoder.",
    )
    encoder_bytes: int = knob(
        1 << 30,
        "Weights of an encoder that a proposer's node gives: of the largest drafters that are "
        "published they take 130 MB.",
    )
    encoder_seconds: float = knob(60.0, "In which all of them are to come: 1 GiB at 18 MB/s.")


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Archives that a node serves, and the connections that use them."""

    at_once: int = knob(320, "Archives of sessions: 256 of one caller and a fifth for others.")
    default_lease_seconds: float = knob(
        3600.0, "What an archive lies unused where its session names no lease."
    )
    longest_lease_seconds: float = knob(86_400.0, "... and where it names a longer one.")
    reclaimed_after_seconds: float = knob(
        60.0,
        "While all are taken, or their memory is, one that is unused for so long is ended for a "
        "new one, as idle sessions are; its session makes it anew from its history.",
    )
    attach_seconds: float = knob(
        30.0,
        "A fork, or an archive just opened, waits so long for the connection that uses it.",
    )
    retry_seconds: float = knob(5.0, "After which one who found it full is told to come back.")
    greetings: int = knob(
        40,
        "Connections that have not attached yet: 32 of one caller and a fifth for others. When "
        "all are taken, the longest silent one is closed for a new one.",
    )
    greeting_seconds: float = knob(2.0, "From a connection to its ATTACH.")
    answer_seconds: float = knob(
        30.0, "A session that takes no byte of an answer for so long has lost its archive."
    )
    accept_again_seconds: float = knob(
        0.1, "After a connection could not be accepted: no file descriptor may be free."
    )
    farewell_seconds: float = knob(
        0.5, "After an error: bytes under way would reset the connection, and the error with it."
    )


@dataclass(frozen=True, slots=True)
class MembershipLimits:
    """What others may tell of the fleet. The pure rooms of `fleet` have these numbers."""

    nodes: int = knob(
        MAX_NODES,
        "Nodes that are known, each by a card of some KiB. When all are taken, a newcomer has the "
        "place of a stranger whose introducer brought the most; nodes that answered stay.",
    )
    card_bytes: int = knob(MAX_CARD_BYTES, "One card, signed: 64 models with their costs.")
    card_models_values: int = knob(MAX_MODELS, "Models of one card.")
    card_addresses_values: int = knob(MAX_ADDRESSES, "Addresses of one card.")
    digest_values: int = knob(
        MAX_DIGEST_LINES,
        "Lines of a digest in one message, 24 bytes a node: 25 ms of the event loop for who reads "
        "them. A larger fleet tells its digest in parts, in turn.",
    )
    cards_values: int = knob(MAX_CARDS_A_MESSAGE, "Cards of one message.")
    cards_bytes: int = knob(
        MAX_CARD_BYTES_A_MESSAGE,
        "Those cards together: half of the 1 MiB of a message, the rest is for digest and rumours.",
    )
    rumours_values: int = knob(MAX_RUMOURS_A_MESSAGE, "Rumours of one message.")
    wanted_values: int = knob(MAX_WANTED_KEYS, "Nodes of which one message may ask.")
    dials_a_second: float = knob(
        4.0, "First calls, and probes for others, that one host may cause after its burst."
    )
    dial_burst: int = knob(
        64,
        "That it may cause at once: a fleet of 64 is measured whole when its first card arrives.",
    )
    introducers: int = knob(
        256, "Hosts whose calls are counted; the one that was used the longest ago has all again."
    )
    seeds: int = knob(MAX_SEEDS, "Addresses that are called until a node answers there.")


@dataclass(frozen=True, slots=True)
class JoiningLimits:
    """Machines that show a join code; the port that they call is open while an invitation is."""

    at_once: int = knob(
        8,
        "Twice as many as invitations: a person types one code at a time. Four times as many "
        "connections are heard out before one is told that all places are taken.",
    )
    seconds: float = knob(
        10.0, "From a join's first byte to its grant: two round trips and two exponentiations."
    )
    invitations: int = knob(MOST_OPEN, "That are open: each for one machine.")
    invitation_seconds: float = knob(
        LIFETIME_SECONDS, "That one is open: a person walks to the other machine and types."
    )
    tries: int = knob(
        TRIES, "Of each, then it is closed: with 30 bits of a code, one in 3.6e8 is guessed."
    )


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Models that a running node is asked to serve."""

    loads: int = knob(
        8,
        "That run or wait, each for the one before it: a load takes seconds to minutes, and who "
        "asks for more is told at once instead.",
    )
    pulls: int = knob(
        4, "That come to the disk at once, each from 8 nodes with 16 pieces of 8 MiB: 512 MiB."
    )
    read_bytes: int = knob(
        160 * MIB,
        "Pieces of models' files that others read: 2 MiB each, 64 of one caller and a fifth for "
        "others.",
    )


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """What those who watch a node are told; each watch is one of `calls.at_once`."""

    events: int = knob(
        256, "The latest that are kept and told to who comes: half a KiB each, 128 KiB."
    )
    transfers: int = knob(64, "Downloads and loads that are told, the latest ones.")


@dataclass(frozen=True, slots=True)
class DashboardLimits:
    """A `fleet dashboard`, which is a process of its own: programs of its machine are one caller.

    `python -m scripts.write.stubs` writes them for it, `dashboard/shared/limits.ts`.
    """

    connections: int = knob(
        256,
        "A browser has six a page. When all are taken, the one that has asked nothing for the "
        "longest time is closed for a new one.",
    )
    pages: int = knob(32, "That listen, each with what waits for it: an eighth of the connections.")
    requests: int = knob(32, "Answered at once besides those: plans, answers of chats, loads.")
    body_bytes: int = knob(MIB, "Longest body of a request: a prompt of 250,000 words.")
    header_seconds: float = knob(10.0, "From a request's first byte to the end of its headers.")
    request_seconds: float = knob(40.0, "From a request's first byte to the end of its body.")
    page_bytes: int = knob(
        MIB,
        "That wait for a page besides the fleet that it began with: one that reads more slowly "
        "is skipped, and told the whole fleet again.",
    )
    logs: int = knob(8, "Logs of nodes of its machine that pages follow, a MiB of each's end.")
    sessions: int = knob(8, "Of chats on all pages; the one idle for the longest time makes room.")
    session_seconds: float = knob(300.0, "Without a question, after which one is closed.")
    events: int = knob(512, "The latest of all nodes, of half a KiB each.")
    transfers: int = knob(64, "Downloads and loads of each node, the latest, as a node keeps.")


@dataclass(frozen=True, slots=True)
class Limits:
    """All of them, by what is bounded."""

    files: FileLimits = field(default_factory=FileLimits)
    calls: CallLimits = field(default_factory=CallLimits)
    http: HttpLimits = field(default_factory=HttpLimits)
    sessions: SessionLimits = field(default_factory=SessionLimits)
    drafts: DraftLimits = field(default_factory=DraftLimits)
    links: LinkServingLimits = field(default_factory=LinkServingLimits)
    link_ends: LinkEndLimits = field(default_factory=LinkEndLimits)
    archives: ArchiveLimits = field(default_factory=ArchiveLimits)
    membership: MembershipLimits = field(default_factory=MembershipLimits)
    joining: JoiningLimits = field(default_factory=JoiningLimits)
    models: ModelLimits = field(default_factory=ModelLimits)
    watches: WatchLimits = field(default_factory=WatchLimits)
    dashboard: DashboardLimits = field(default_factory=DashboardLimits)

    def knobs(self) -> Iterator[Knob]:
        """Each bound, in the order in which people read them."""
        for each in fields(self):
            yield from knobs(each.name, getattr(self, each.name))
