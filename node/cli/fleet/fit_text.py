"""The answer of `fleet fit` as a table with notes, and as JSON."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from kakeya_fleet.engine.models.weight_choice import AUTO
from kakeya_fleet.fleet.placement.fit import Fits, Way, fits
from kakeya_fleet.node.cli.terminal.quantities import bytes_text
from kakeya_fleet.node.cli.terminal.tables import Cell, Column, Row
from kakeya_fleet.node.planning.kv_quality import MEASURED_ON

if TYPE_CHECKING:
    from kakeya_fleet.node.cli.fleet.fit_answer import Answer

COLUMNS = (
    Column("keys and values"),
    Column("fits"),
    Column("here", right=True),
    Column("archive", right=True, folds=3),
    Column("longest that fits", right=True, folds=4),
    Column("bits", right=True, folds=2),
    Column("nats", right=True, folds=1),
)
FITS = {
    Fits.YES: ("yes", "green"),
    Fits.WITH_BUDGET: ("with a budget", "yellow"),
    Fits.NO: ("no", "red"),
    Fits.IMPOSSIBLE: ("impossible", "dim"),
}


def rows(answer: Answer) -> list[Row]:
    """A row for each way, in the order of preference."""
    return [_row(way, answer) for way in answer.ways]


def _row(way: Way, answer: Answer) -> Row:
    word, style = FITS[fits(way, answer.memory)]
    if way.problem:
        return [Cell(way.name, "dim"), Cell(word, style), *["-"] * (len(COLUMNS) - 2)]
    return [
        Cell(way.name, "bold"),
        Cell(word, style),
        bytes_text(way.resident_bytes),
        bytes_text(way.archive_bytes) if way.archive_bytes else "-",
        _longest(way, answer),
        f"{way.bits:.2f}".rstrip("0").rstrip("."),
        f"{way.divergence_nats:.4f}" if way.divergence_nats else "0",
    ]


def _longest(way: Way, answer: Answer) -> str:
    if not way.longest_tokens:
        return "none"
    if way.longest_tokens < answer.model.layout.context_length:
        return f"{way.longest_tokens:,}"
    return f"{way.longest_tokens:,}, all positions" if answer.model.is_bounded else "any"


def notes(answer: Answer) -> list[str]:
    """What the numbers are of, and why a way is impossible."""
    memory, model = answer.memory, answer.model
    machine = " free here" if answer.is_of_this_machine else ""
    found = [
        f"memory {bytes_text(memory.memory_bytes)}{machine}: weights"
        f" {bytes_text(memory.weight_bytes)}, what a forward computes in"
        f" {bytes_text(memory.working_bytes)}, beside them {bytes_text(memory.room_bytes)}; by"
        f" itself a node gives {bytes_text(memory.budget_bytes)} to keys and values",
        f"weights {_weights(answer)}; to load them takes {bytes_text(memory.loading_bytes)}, and to"
        f" check them at a first load up to {bytes_text(memory.checking_bytes)} beside them",
        f"keys and values of {answer.tokens:,} tokens in {model.dtype}; the window of sink_window"
        f" and restored is {answer.sink_tokens:,} + {answer.window_tokens:,} positions, and"
        " sink_window forgets the rest; restored needs an archive with room",
        "not counted: the process itself and its libraries",
        f"nats: how far packing moved the choices' distributions of {MEASURED_ON}",
    ]
    return found + _problems(answer)


def _problems(answer: Answer) -> list[str]:
    """Why ways are impossible, each reason once."""
    names: dict[str, list[str]] = {}
    for way in answer.ways:
        if way.problem:
            names.setdefault(way.problem, []).append(way.name)
    return [f"{'; '.join(told)}: {problem}" for problem, told in names.items()]


def _weights(answer: Answer) -> str:
    """Those asked for, then the others, and the files."""
    model = answer.model
    own = f"{answer.weights} ({model.dtype})" if answer.weights == AUTO else answer.weights
    others = [
        f"{name} {bytes_text(count)}"
        for name, count in model.weight_bytes.items()
        if name not in (answer.weights, AUTO)
    ]
    if model.file_bytes:
        others.append(f"the file {bytes_text(model.file_bytes)}")
    return f"{own} {bytes_text(model.weight_bytes[answer.weights])} ({', '.join(others)})"


def fields(answer: Answer) -> dict[str, object]:
    """The answer for programs."""
    model = answer.model
    return {
        "model": model.name,
        "architecture": model.architecture,
        "dtype": model.dtype,
        "positions": model.layout.context_length if model.is_bounded else None,
        "fits": answer.verdict.fits,
        "sentences": list(answer.verdict.sentences),
        "asked_tokens": answer.asked_tokens,
        "tokens": answer.tokens,
        "sink_tokens": answer.sink_tokens,
        "window_tokens": answer.window_tokens,
        "weights": answer.weights,
        "weight_bytes": dict(model.weight_bytes),
        "weights_refused": dict(model.refused),
        "file_bytes": model.file_bytes,
        "memory": {
            **dataclasses.asdict(answer.memory),
            "needed_bytes": answer.memory.needed_bytes,
            "room_bytes": answer.memory.room_bytes,
            "is_of_this_machine": answer.is_of_this_machine,
        },
        "ways": [_way_fields(way, answer) for way in answer.ways],
        "measured_on": MEASURED_ON,
    }


def _way_fields(way: Way, answer: Answer) -> dict[str, object]:
    return {
        **dataclasses.asdict(way),
        "fits": fits(way, answer.memory),
        "sees_all": way.sees_all,
    }
