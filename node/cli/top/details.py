"""One node, or one session, on the whole screen of `fleet top`. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from kakeya import PeerLink, SessionInfo, SessionState
from kakeya_fleet.node.cli.fleet.event_lines import EventLine
from kakeya_fleet.node.cli.fleet.notes import fault_line
from kakeya_fleet.node.cli.terminal.quantities import (
    bytes_text,
    rate_text,
    seconds_text,
    share_of_bytes_text,
    share_text,
    speed_text,
)
from kakeya_fleet.node.cli.terminal.timeline import draw_timeline
from kakeya_fleet.node.cli.top.looks import (
    DRAFT,
    VERIFY,
    WAIT,
    WIRE,
    block_cells,
    fitted,
    sparkline,
    split_bar,
)
from kakeya_fleet.node.cli.top.rows import event_text, split_of, transfer_line
from kakeya_fleet.node.cli.top.view import memory_of
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet, WatchedNode, WatchedSession
from kakeya_fleet.node.cli.top.work import measure_of, most_text, use_facts, work_facts

if TYPE_CHECKING:
    from kakeya import Card, RestorerInfo

OWN_MEMORY = frozenset({"cuda"})
"""Kinds of accelerators that do not compute in the machine's memory."""
_HEAD = "bold cyan"
_TITLE_WIDTH = 12
_TIMELINE_ROWS = 10


def node_details(fleet: WatchedFleet, node: WatchedNode, width: int) -> list[Text]:
    """A node: what it is and serves, its latest minutes, links, transfers and events."""
    status, own, latest = node.status, node.node, node.latest
    used, total = memory_of(node)
    liveness = status.liveness.value
    if node.trouble:
        liveness += f"; its watch broke: {node.trouble}"
    facts = [
        ("node", f"{status.name}  {status.node_id[:16]}"),
        ("state", liveness + (", draining" if own and own.draining else "")),
        ("address", status.address or "-"),
    ]
    card = own.card if own else status.card
    if card is not None:
        facts.append(("machine", machine_text(card)))
        facts.append(("software", f"{card.software_version}, protocol {card.protocol_max}"))
    facts += [("cannot join", fault_line(fault)) for fault in (own.seed_faults if own else ())]
    facts.append(("memory", share_of_bytes_text(used, total) if total else "-"))
    if latest is not None:
        facts += use_facts(latest)
    facts += work_facts(node)
    drafted, accepted = fleet.drafted_by(status.node_id)
    if drafted:
        facts.append(("accepted", f"{share_text(accepted, drafted)} of {drafted:,} drafted here"))
    if latest is not None:
        facts.append(("tensors", rate_text(latest.link_bytes_per_second)))
    for model in status.models:
        kind = model.kind.value.replace("_", " ")
        digest = f", weights {model.weights_digest[:12]}" if model.weights_digest else ""
        facts.append((model.role.value, f"{model.model_id} ({kind}){digest}"))
    lines = [_fact(title, text, width) for title, text in facts]
    work = [measure_of(node)(sample) for sample in node.samples]
    if any(work):
        room = max(10, width - _TITLE_WIDTH - 12)
        shown = work[-room:]
        picture = Text("seconds".ljust(_TITLE_WIDTH), "bright_black")
        picture.append_text(sparkline(shown, room, max(shown))).append(f" {most_text(node, shown)}")
        lines.append(fitted(picture, width))
    lines += _links(fleet, node, width)
    for transfer in list(node.transfers.values())[-3:]:
        lines.append(transfer_line(transfer, status.name, width))
    lines.append(fitted(Text("EVENTS", _HEAD), width))
    for event in reversed(node.events):
        lines += event_text(EventLine(event, [status.node_id]), fleet, width)
    return lines


def _links(fleet: WatchedFleet, node: WatchedNode, width: int) -> list[Text]:
    own = node.node
    if own is None:
        return []
    lines = [fitted(Text("LINKS", _HEAD), width)]
    for link in own.tensor_links:
        text = Text(f"{fleet.name_of(link.peer_node_id)} ", "bold")
        text.append(f"{link.purpose.value.replace('_', ' ')} over {link.transport.value} ")
        text.append(f"{rate_text(link.bytes_per_second)}, {bytes_text(link.byte_count)}; ")
        text.append(link.reason, "yellow" if link.demotion_count else "bright_black")
        lines.append(fitted(text, width))
    for peer in own.links:
        state = _shut_out(peer)
        trip = seconds_text(peer.round_trip_seconds)
        text = Text(f"{fleet.name_of(peer.node_id)} ", "bold")
        lines.append(fitted(text.append(f"round trip {trip}{state}"), width))
    return lines if len(lines) > 1 else []


def _shut_out(peer: PeerLink) -> str:
    if not peer.breaker_open:
        return ""
    return f", {', '.join(peer.breaker_open_models) or 'proposers'} not called: failed too often"


def session_details(fleet: WatchedFleet, session: WatchedSession, width: int) -> list[Text]:
    """A session: where it runs, what it did, its latest blocks in time."""
    activity = session.activity
    info = activity.session
    proposer = info.plan.proposer
    facts = [
        ("session", f"{info.session_id[:16]}  {info.client_label}"),
        ("model", f"{info.model_id} on {fleet.name_of(session.node_id)}"),
        ("drafts", f"{proposer.model_id} on {proposer.node_name}" if proposer else "nobody"),
        (
            "history",
            f"{info.history_length:,} tokens, {info.resident_token_count:,} resident, "
            f"K/V {bytes_text(info.kv_bytes)} ({info.kv_strategy.value})",
        ),
        (
            "state",
            f"{info.state.value}, open for {seconds_text(max(0.0, info.age_seconds))}, "
            f"{speed_text(activity.tokens_per_second)}"
            + (f", stopped: {activity.stop_reason.value}" if activity.stop_reason else ""),
        ),
        (
            "done",
            f"{activity.generation_count} answers of {activity.generated_token_count:,} tokens, "
            f"{activity.prefilled_token_count:,} read in {seconds_text(activity.prefill_seconds)}",
        ),
        (
            "accepted",
            f"{activity.accepted_count:,} of {activity.drafted_count:,} drafted "
            f"({share_text(activity.accepted_count, activity.drafted_count)}), acceptance length "
            f"{session.acceptance_length:.2f}",
        ),
    ]
    if info.drop_reason is not None:
        facts.append(("alone", f"the proposer was dropped: {info.drop_reason.value}"))
    facts += _memory_facts(info)
    if info.invariants:
        checked = sum(each.check_count for each in info.invariants)
        broken = sum(each.violation_count for each in info.invariants)
        facts.append(("promises", f"checked {checked:,} times, {broken or 'none'} broken"))
    lines = [_fact(title, text, width) for title, text in facts]
    lines.append(_split_line(session, width))
    cells = Text("blocks".ljust(_TITLE_WIDTH), "bright_black")
    lines.append(
        fitted(cells.append_text(block_cells(session.blocks, width - _TITLE_WIDTH)), width)
    )
    lines.append(Text(" " * width))
    lines += _timeline(session, width)
    for change in activity.link_changes[-4:]:
        peer = fleet.name_of(change.peer_node_id)
        text = f"{change.purpose.value.replace('_', ' ')} with {peer}: {change.transport.value}"
        lines.append(_fact("link", f"{text}: {change.reason}", width))
    return lines


def _timeline(session: WatchedSession, width: int) -> list[Text]:
    """The blocks of the latest generation, in time."""
    if not session.blocks:
        return []
    latest = session.blocks[-1].generation_number
    blocks = [block for block in session.blocks if block.generation_number == latest]
    drawn = draw_timeline(blocks, width=max(10, min(120, width - 52)), row_count=_TIMELINE_ROWS)
    lines = []
    for row in drawn.splitlines():
        text = Text(row)
        for glyph, style in (("▒", DRAFT), ("░", WIRE), ("█", VERIFY)):
            text.highlight_regex(f"{glyph}+", style)
        lines.append(fitted(text, width))
    return lines


def _split_line(session: WatchedSession, width: int) -> Text:
    parts = split_of(session)
    whole = sum(part for part, _ in parts)
    names = {DRAFT: "draft", WIRE: "wire", VERIFY: "verify", WAIT: "wait"}
    text = Text("split".ljust(_TITLE_WIDTH), "bright_black")
    text.append_text(split_bar(parts, max(10, min(30, width - 50)))).append(" ")
    for part, style in parts:
        text.append(f" {names[style]} {share_text(part, whole)}", style)
    return fitted(text, width)


def _kept_by(restorer: RestorerInfo) -> str:
    """Who keeps what is evicted, and how."""
    packed = f", packed by {restorer.codec}," if restorer.codec else ""
    return f"by {restorer.kind.value}{packed}"


def _fact(title: str, text: str, width: int) -> Text:
    return fitted(Text(title.ljust(_TITLE_WIDTH), "bright_black").append(text, "default"), width)


def _memory_facts(info: SessionInfo) -> list[tuple[str, str]]:
    """What became of its keys and values."""
    facts = []
    if info.forgotten_token_count:
        facts.append(("forgotten", f"{info.forgotten_token_count:,} tokens: it sees them no more"))
    if info.state is SessionState.RESTING:
        facts.append(("rests", "another session has its memory: its next operation begins later"))
    if info.recomputed_token_count:
        facts.append(("again", f"{info.recomputed_token_count:,} tokens computed once more"))
    if info.restorer is not None and info.kv_strategy.value == "full":
        facts.append(
            (
                "packed",
                f"{info.restorer.evicted_token_count:,} tokens, "
                f"{bytes_text(info.restorer.evicted_bytes)} by {info.restorer.codec}, "
                "on its own node",
            )
        )
    elif info.restorer is not None:
        facts.append(
            (
                "evicted",
                f"{info.restorer.evicted_token_count:,} tokens, "
                f"{bytes_text(info.restorer.evicted_bytes)} {_kept_by(info.restorer)} on "
                f"{info.restorer.node_name or 'its own node'}",
            )
        )
    return facts


def machine_text(card: Card) -> str:
    """Platform and accelerator, with the memory that is the accelerator's alone."""
    text = f"{card.platform}, {card.accelerator_kind} {card.accelerator_name}"
    if card.accelerator_kind not in OWN_MEMORY or not card.accelerator_memory_total_bytes:
        return text
    free, total = card.accelerator_memory_free_bytes, card.accelerator_memory_total_bytes
    return f"{text}, {share_of_bytes_text(free, total)} of its own free at the start"
