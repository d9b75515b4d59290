"""The tables of scripts/eval/needle.py, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LABELS = {
    "full": "full attention",
    "sink_window": "sink + window",
    "restored identity": "restored, identity (plumbing)",
    "restored archive": "restored, archive",
    "restored projection": "restored, projection",
}
DASH = "–"


def needle_markdown(report: Mapping[str, Any]) -> str:
    """Recall by context, then what lies behind it at each context."""
    rungs = report["rungs"]
    names = list(rungs[0]["strategies"])
    contexts = [f"{rung['context_tokens']:,}" for rung in rungs]
    recall = _table(
        ["recall, %", *contexts],
        [
            [LABELS.get(name, name), *(_recall(rung["strategies"][name]) for rung in rungs)]
            for name in names
        ],
    )
    evicted = [f"{rung['strategies'][names[0]]['fact_evicted']['share']:.0%}" for rung in rungs]
    detail = _table(
        [
            "tokens of context",
            "K/V kept as",
            "KL to full, nats",
            "same first choice",
            "effective attention",
            "K error by layer",
            "V error by layer",
            "decode, tokens/s",
            "verifier's K/V",
            "restorer's",
            "step's peak",
        ],
        [
            _detail(rung["context_tokens"], name, rung["strategies"][name])
            for rung in rungs
            for name in names
        ],
    )
    head = (
        f"Recall of {report['facts']} fact(s), {rungs[0]['strategies'][names[0]]['cases']} cases a "
        f"context, sink {report['sink_tokens']} and window {report['window_tokens']}; in "
        "parentheses the Wilson 95 % interval. Facts evicted: "
        + ", ".join(
            f"{share} at {context}" for share, context in zip(evicted, contexts, strict=True)
        )
        + ".\n"
    )
    return f"{head}\n{recall}\n{controls_markdown(report)}\n{detail}"


def controls_markdown(report: Mapping[str, Any]) -> str:
    """Hits of the controls, by control and context."""
    cells = report["controls"]
    names = list(cells[0]["strategies"])
    return _table(
        [
            "answers with the value, %",
            "context",
            "copying any fact",
            *(LABELS.get(name, name) for name in names),
        ],
        [
            [
                cell["control"],
                f"{cell['context_tokens']:,}",
                f"{100 * cell['chance']:.0f}",
                *(_recall(cell["strategies"][name]) for name in names),
            ]
            for cell in cells
        ],
    )


def _recall(found: Mapping[str, Any]) -> str:
    low, high = found["wilson_95"]
    return f"{100 * found['recall']:.1f} ({100 * low:.0f} to {100 * high:.0f})"


def _detail(context: int, name: str, found: Mapping[str, Any]) -> list[str]:
    anatomy = found["anatomy"]
    is_full = name == "full"
    return [
        f"{context:,}",
        LABELS.get(name, name),
        DASH if is_full else f"{found['kl_nats_mean']:.2g}",
        DASH if is_full else f"{found['argmax_agreement']:.1%}",
        DASH if anatomy["effective_attention"] is None else f"{anatomy['effective_attention']:.3f}",
        _by_layer(anatomy["key_error_by_layer"]),
        _by_layer(anatomy["value_error_by_layer"]),
        f"{anatomy['decode_tokens_per_second']['median']:.0f}",
        _bytes(anatomy["sustained_kv_bytes"]),
        _bytes(anatomy["restorer_bytes"]) if anatomy["restorer_bytes"] else DASH,
        _bytes(anatomy["peak_step_bytes"]),
    ]


def _by_layer(errors: Sequence[float] | None) -> str:
    return DASH if errors is None else " ".join(f"{error:.2g}" for error in errors)


def _bytes(count: int) -> str:
    return f"{count / 1024:,.0f} KiB"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
