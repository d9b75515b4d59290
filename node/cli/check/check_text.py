"""What `fleet check` says: sentences for people, fields for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kakeya_fleet.engine.models.weight_choice import AUTO
from kakeya_fleet.engine.speculation.stream_proof import StreamProof
from kakeya_fleet.node.cli.check.checking import Checked
from kakeya_fleet.node.cli.terminal.quantities import bytes_text, seconds_text, speed_text
from kakeya_fleet.node.config.machine import processor_name


def fields(checked: Checked) -> dict[str, object]:
    """For JSON."""
    info, streams, speed = checked.info, checked.streams, checked.speed
    return {
        "model": info.model_id,
        "weights_digest": info.weights_digest,
        "architecture": info.architecture,
        "backend": info.backend,
        "dtype": info.dtype,
        "weights": checked.weights,
        "quantization": info.quantization,
        "device": dataclasses.asdict(dataclasses.replace(checked.device, name=_name(checked))),
        "load_seconds": checked.load_seconds,
        "exact": checked.exactness.exact,
        "row_counts": list(checked.exactness.row_counts),
        "row_counts_tried": list(checked.row_counts_tried),
        "thread_count": checked.exactness.thread_count,
        "streams": {**dataclasses.asdict(streams), "holds": streams.holds},
        "speed": {**dataclasses.asdict(speed), "block_over_token": speed.block_over_token},
        "holds": checked.holds,
    }


def sentences(checked: Checked) -> list[str]:
    """One for what computes, one for each thing found, and the verdict."""
    return [
        _what(checked),
        _memory(checked),
        _forwards(checked),
        _streams(checked.streams),
        _speed(checked),
        _verdict(checked),
    ]


def _what(checked: Checked) -> str:
    info = checked.info
    stored = "as they are stored" if checked.weights == AUTO else f"as {checked.weights}"
    threads = checked.exactness.thread_count
    shared = f", {_counted(threads, 'thread')} a forward" if threads else ""
    return (
        f"{info.model_id}: {info.architecture} in {info.dtype}, weights {stored}, computed by"
        f" {info.backend} on {_device(checked)}{shared}."
    )


def _device(checked: Checked) -> str:
    name, kind = _name(checked), checked.device.kind
    place = "the processor" if kind == "cpu" else kind
    return f"{place} ({name})" if name else place


def _name(checked: Checked) -> str:
    """The driver's name of the device; the processor's is the machine's own."""
    return checked.device.name or processor_name()


def _memory(checked: Checked) -> str:
    device = checked.device
    return (
        f"Loaded in {seconds_text(checked.load_seconds)}; behind it"
        f" {bytes_text(device.memory_free_bytes)} of {bytes_text(device.memory_total_bytes)} are"
        f" free there. It computes in {_listed(device.dtypes)}, with weights"
        f" {_listed(device.weights)}."
    )


def _forwards(checked: Checked) -> str:
    counts, tried = checked.exactness.row_counts, checked.row_counts_tried
    if not checked.exactness.exact:
        return (
            f"Forwards are not exact: even those of one number of rows (tried {_listed(tried)}) do"
            " not give a token the same bits at every cut of its history."
        )
    others = [count for count in tried if count not in counts]
    if not others:
        return f"Forwards of {_listed(counts)} rows give the same bits."
    fallen = "alone " if len(counts) == 1 else ""
    return (
        f"Forwards of {_listed(counts)} rows {fallen}give the same bits, and are kept to; those of"
        f" {_listed(others)} round otherwise here."
    )


def _streams(streams: StreamProof) -> str:
    behind = "past" if streams.is_past_window else "not past, the model has too few positions:"
    run = (
        f"Streams of {streams.generated} tokens behind a history of {streams.history}"
        f" ({behind} sink {streams.sink} + window {streams.window}):"
    )
    lied, cut = (
        "the same" if same else "another stream"
        for same in (streams.same_with_lies, streams.same_in_pieces)
    )
    return (
        f"{run} with a drafter that lies ({streams.drafted} drafted, {streams.accepted} true)"
        f" {lied}, with a history that comes in pieces {cut}."
    )


def _speed(checked: Checked) -> str:
    speed = checked.speed
    return (
        f"Decodes at {speed_text(speed.decode_tokens_per_second)}, reads a history at"
        f" {speed_text(speed.prefill_tokens_per_second)}; a block of {speed.block_tokens} is"
        f" verified in {speed.block_over_token:.1f} times a token's time."
    )


def _verdict(checked: Checked) -> str:
    if checked.holds:
        return f"{checked.info.model_id} is exact here."
    return (
        f"{checked.info.model_id} is NOT exact here: a node would serve it labelled, and the"
        " planner pairs it with no proposer unasked."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(items: Sequence[object]) -> str:
    """`4`, `4 and 8`, `4, 8 and 16`."""
    texts = [str(item) for item in items]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
