"""The tables of docs/figures.md: each from one report, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts.write.figures_register import FIGURES, Report, Table

KV = "sink_window"
"""How K/V are kept in the table of the pair."""
TINY = "engine/shipped/tiny/evaluation.json"
CHOICES = {"greedy": "greedy", "sampled": "temperature 0.7"}
KINDS = {
    "code": "code, held-out files of the standard library",
    "package": "code, packages",
    "prose": "prose",
    "random": "random ids",
}
STRATEGIES = {
    "full": "full attention",
    "sink_window": "sink + window",
    "restored identity": "restored, identity (plumbing)",
    "restored archive": "restored, archive",
    "restored projection": "restored, projection",
}
CONTROLS = {
    "absent key": "a key that is nowhere: copies",
    "2 facts": "2 facts",
    "4 facts": "4 facts",
}
ARCHIVE_SIDES = (
    "full",
    "restored, archive in this process",
    "restored, archive over loopback",
    "restored, archive over 10 Gbit/s + 0.1 ms",
    "restored, archive over 1 Gbit/s + 0.3 ms",
)
WAYS = (
    "raw TCP",
    "bare ring",
    "bare ring, pieces",
    "shared-memory road",
    "ring road",
    "link over gRPC",
    "link over shared memory",
    "link over the ring",
)
CLIENTS = {
    "typescript_node": "TypeScript SDK, Node 20 (goal 5,000)",
    "typescript_bun": "TypeScript SDK, Bun",
    "python_async": "Python SDK",
}
BLOCKS = (1, 4, 16)
FEW_A_SECOND = 10
"""Below it a digit more is told."""


def published_speeds(found: Report) -> list[str]:
    """A row a side, in the order of the run; the tokens of shorter prompts in brackets."""
    shorter = found.get("shorter_prompts", {})

    def number(own: Report, what: str) -> str:
        if what not in own:
            return ""
        speed = own[what]["median"]
        return f"{speed:.0f}" if speed >= FEW_A_SECOND else f"{speed:.1f}"

    return [
        f"| {name} | {number(own, 'decode')} | {number(own, 'prefill')}"
        f"{f' ({shorter[name]})' if name in shorter else ''} | {number(own, 'together')} |"
        for name, own in found["tokens_per_second"].items()
    ]


def prompt_speeds(found: Report) -> list[str]:
    """A row a side at each shape, in the order of the run."""
    return [
        line(model, name, f"{told['median']:.0f}")
        for model, own in found["by_model"].items()
        for name, told in own["tokens_per_second"].items()
    ]


def weights_qualities(found: Report) -> list[str]:
    """A row a side, the checkpoint's own numbers first."""
    return [
        line(
            name,
            f"{own['divergence_nats']:.4f}" if "divergence_nats" in own else "",
            f"{100 * own['same_choice']:.1f}" if "same_choice" in own else "",
            f"{own['perplexity']:.2f}",
            f"{own['needles']['hits']} of {own['needles']['cases']}",
        )
        for name, own in found["of_weights"].items()
    ]


def line(*cells: str) -> str:
    """One row."""
    return f"| {' | '.join(cells)} |"


def interval(found: Mapping[str, Any], digits: int = 2) -> str:
    """A median with its 95 % interval."""
    low, high = found["interval_95"]
    return f"{found['median']:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def share(found: Mapping[str, Any]) -> str:
    """A recall in per cent with its Wilson interval."""
    low, high = found["wilson_95"]
    return f"{100 * found['recall']:.1f} ({100 * low:.0f} to {100 * high:.0f})"


def pair(found: Report) -> list[str]:
    """The shipped pair, prompt kind by prompt kind."""
    return [_pair_row(cell) for cell in found["cells"]]


def _pair_row(cell: Mapping[str, Any]) -> str:
    sides, ratios = cell["sides"], cell["ratios"]

    def speed(name: str) -> str:
        return f"{sides[name]['tokens_per_second_median']:,.0f}"

    library = max(
        ("transformers", "transformers_static"),
        key=lambda name: float(sides[name]["tokens_per_second_median"]),
    )
    remote, beside = f"remote {KV}", f"remote {KV} ngram"
    return line(
        KINDS[cell["kind"]],
        CHOICES[cell["sampling"]],
        speed(f"alone {KV}"),
        speed(library),
        speed(f"in_process {KV}"),
        speed(remote),
        interval(ratios[remote]["over_fastest_plain"]),
        speed(beside),
        interval(ratios[beside]["over_fastest_plain"]),
        f"{sides[remote]['tokens_per_forward']:.2f}",
        f"{sides[remote]['loop_efficiency']['median']:.2f}",
        f"{100 * cell['repeated_share'][KV]['median']:.0f} %",
    )


def needle(found: Report) -> list[str]:
    """Recall of one fact by context."""
    rungs = found["rungs"]
    return [
        line(label, *(share(rung["strategies"][name]) for rung in rungs))
        for name, label in STRATEGIES.items()
    ]


def controls(found: Report) -> list[str]:
    """What recall of one fact does not show."""
    names = [name for name in STRATEGIES if name != "restored identity"]
    return [
        line(
            CONTROLS[cell["control"]],
            f"{cell['context_tokens']:,}",
            f"{100 * cell['chance']:.0f}",
            *(share(cell["strategies"][name]) for name in names),
        )
        for cell in found["controls"]
    ]


def restored(found: Report) -> list[str]:
    """Steps of restored caches over full attention's."""
    labels = {
        ("restored archive", 1): "archive in another process, single tokens",
        ("restored archive", 16): "the same, blocks of 16",
        ("restored projection", 1): "projection, single tokens",
        ("restored projection", 16): "projection, blocks of 16",
    }
    cells = found["shipped"]["cells"]
    return [
        line(
            label,
            *(
                f"{cell['strategies'][name]['over_full']['median']:.2f}"
                for cell in cells
                if cell["tokens_a_step"] == size
            ),
        )
        for (name, size), label in labels.items()
    ]


def archive(found: Report) -> Iterator[str]:
    """Tokens a second by context, and over full attention by turns."""
    contexts = found["contexts"]
    for side in ARCHIVE_SIDES:
        yield line(side, *(_archive_speed(context, side) for context in contexts))
    for side in ARCHIVE_SIDES[-2:]:
        over = (
            found["verdict"]["over_full"][str(c["context_tokens"])][side]["1"] for c in contexts
        )
        label = side.removeprefix("restored, ")
        yield line(
            f"{label}, over full (by turns)",
            *("-" if each is None else f"{each['median']:.2f}" for each in over),
        )


def _archive_speed(context: Mapping[str, Any], side: str) -> str:
    cell = context["sides"].get(side)
    if cell is None or not cell.get("blocks"):
        return "does not fit"
    return f"{cell['blocks']['1']['tokens_per_second']['median']:.3g}"


def links(found: Report) -> list[str]:
    """Microseconds by way and payload."""
    cells = found["payloads"]["cells"]
    return [
        line(
            way,
            *(f"{1e6 * cell['seconds']['median']:,.0f}" for cell in cells if cell["way"] == way),
        )
        for way in WAYS
    ]


def families(found: Report) -> Iterator[str]:
    """What holds on the back ends that serve a family; others refuse it by name."""
    names: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["rows"]:
        if row["found"]:
            names.setdefault(row["family"], []).append(row)
    order = ("greedy", "speculation", "chunking", "rollback", "fork", "self_check")
    backends = {"torch": "torch", "mlx": "MLX"}
    for family, rows in names.items():
        served = ", ".join(
            label for key, label in backends.items() if any(row["backend"] == key for row in rows)
        )
        holds = (
            all(column in row["found"] and all(row["found"][column].values()) for row in rows)
            for column in order
        )
        yield line(family, served, *("yes" if each else "no" for each in holds))


def decode(found: Report) -> list[str]:
    """Single-token steps at real shapes."""
    return [_decode_row(cell) for cell in found["cells"]]


def _decode_row(cell: Mapping[str, Any]) -> str:
    def speed(name: str) -> str:
        side = cell["sides"].get(name)
        return f"{side['tokens_per_second_median']:.1f}" if side else "-"

    kernels = cell["bandwidth"]["kernels"].values()
    median = max(kernel["median"] for kernel in kernels)
    bound = cell["bound_tokens_per_second"]
    of_median = bound * median / cell["bandwidth"]["bound_bytes_per_second"]
    return line(
        f"{cell['model']}, {cell['dtype']}",
        f"{cell['context']:,}",
        speed("torch"),
        speed("transformers"),
        speed("transformers_static"),
        f"{cell['ratios']['torch_over_fastest_rival']:.2f}",
        f"{bound:.0f} ({of_median:.0f})",
    )


def sessions(found: Report) -> list[str]:
    """Latency and memory over thousands of turns."""
    labels = {
        "sink_window": "sink 4 + window 64, positions edited",
        "full": "full, a new session at 2,048 tokens",
    }
    return [
        line(
            labels[run["kind"]],
            f"{run['sessions']}",
            f"{run['turns']:,}",
            f"{1e3 * run['first_tenth_p50']:,.0f} ms",
            f"{1e3 * run['last_tenth_p50']:,.0f} ms",
            f"{run['kv_bytes_last']:,}",
            f"{run['resident_last_tenth_over_first']:.3f}",
        )
        for run in found["runs"]
    ]


def crowds(found: Report) -> list[str]:
    """Tokens a second of several sessions together."""
    labels = {"sink_window": "sink 4 + window 64, tokens a second", "full": "full"}
    return [
        line(labels[kind], *(f"{cell['tokens_per_second']:,.0f}" for cell in cells))
        for kind, cells in found["crowds"].items()
    ]


def generation(found: Report) -> list[str]:
    """With the cache and without."""
    labels = {"kv_cache": "with the cache", "no_kv_cache": "full recomputation"}
    return [
        line(
            label,
            f"{side['tokens_per_second_median']:.0f}",
            f"{1e3 * side['first_token_seconds_median']:.0f} ms",
            f"{1e3 * side['step_seconds_mean']:.1f} ms",
            *(f"{1e3 * side[f'step_seconds_{name}']:.1f}" for name in ("p50", "p95", "p99")),
            f"{side['last_tenth_over_first']:.2f}",
            f"{side['cache_bytes']:,}",
            f"{side['peak_memory_bytes'] / 1e6:.1f} MB",
        )
        for side, label in ((found["sides"][name], label) for name, label in labels.items())
    ]


def recall(found: Report) -> list[str]:
    """The shipped verifier, one fact and four."""
    return [_recall_row(rung) for rung in found["recall"]]


def _recall_row(rung: Mapping[str, Any]) -> str:
    full, sink = rung["full"], rung["sink_window"]
    evicted = sink["fact_evicted"]
    return line(
        f"{rung['context_tokens']:,}",
        f"{rung['facts']}",
        f"{full['hits']} / {full['cases']}",
        f"{sink['hits']} / {sink['cases']}",
        f"{evicted['hits']} / {evicted['cases']}",
    )


def typescript(found: Report) -> list[str]:
    """Tokens a second of the clients."""
    return [
        line(
            label,
            *(
                f"{found['clients'][name][f'block_{size}']['tokens_per_second_median']:,}"
                for size in BLOCKS
            ),
        )
        for name, label in CLIENTS.items()
    ]


def soak(found: Report) -> Iterator[str]:
    """Every bucket of every sitting."""
    for number, sitting in enumerate(found["sittings"], 1):
        minutes = 0.0
        for bucket in sitting["buckets"]:
            minutes += bucket["seconds"] / 60
            yield _soak_row(number, minutes, bucket)


def _soak_row(number: int, minutes: float, bucket: Mapping[str, Any]) -> str:
    failures: Mapping[str, int] = bucket["failures"]
    probe = bucket["probe"]
    return line(
        f"{number}",
        f"{minutes:.0f}",
        f"{bucket['turns']:,}",
        f"{sum(failures.values())}",
        *(f"{1e3 * bucket[f'turn_seconds_{name}']:,.0f}" for name in ("p50", "p95", "p99")),
        f"{bucket['node_resident_bytes'] / 1e6:.0f}",
        f"{bucket['node_open_files']}",
        f"{bucket['node_threads']}",
        f"{bucket['sessions_opened']}, {bucket['sessions_closed']}",
        f"{probe['answers'] - len(probe['differed'])} / {probe['answers']}",
    )


def news(found: Report) -> Iterator[str]:
    """News to everybody, in rounds."""
    for row in found["news"]:
        yield line(
            f"{row['node_count']:,}",
            f"{row['loss']:.0%}".replace("%", " %"),
            f"{row['samples']:,}",
            f"{row['rounds_p50']:.1f}",
            f"{row['rounds_p99']:.1f}",
            f"{row['bound']:.1f}",
            "met" if row["kept"] else "**missed**",
        )


def crowd_sizes(found: Report) -> Iterator[str]:
    """What a node sends and keeps, and how long a death takes to be found, by nodes."""
    deaths = {row["node_count"]: row for row in found["deaths"]}
    memory = {row["node_count"]: row for row in found["memory"]}
    for row in found["idle"]:
        count = row["node_count"]
        death, kept = deaths.get(count), memory.get(count)
        yield line(
            f"{count:,}",
            f"{row['bytes_a_second_a_node']:,.0f}",
            f"{kept['bytes'] / 1e6:.2f} MB" if kept else "-",
            f"{death['first_seconds_p50']:.1f}" if death else "-",
            f"{death['everyone_seconds_max']:.1f}" if death else "-",
            f"{death['samples']}" if death else "-",
        )


def table(head: Sequence[str] | str, name: str, rows: Any) -> Table:
    """A table of docs/figures.md."""
    words = head if isinstance(head, str) else line(*head)
    return Table(FIGURES, words, name, lambda found: list(rows(found)))


TABLES = (
    table(
        "| prompts | choice | this engine alone | transformers, its faster cache "
        "| drafts in process | drafts from another node | over the fastest plain "
        "| `ngram` from another node | over the fastest plain | tokens a forward "
        "| the loop keeps | repeats |",
        "speculation",
        pair,
    ),
    table("| recall of one fact, % | 128 | 256 | 512 | 1,000 | 2,000 |", "needle", needle),
    table(
        "| answers with the value asked for, or copied, % | context | any fact's value "
        "| full attention | sink + window | restored, archive | restored, projection |",
        "needle",
        controls,
    ),
    table("| context | 128 | 256 | 512 | 1,024 | 1,980 |", "restored", restored),
    table("| tokens a second | 2,048 | 8,192 | 32,768 | 131,072 |", "archive", archive),
    table("| | 64 B | 1 KiB | 64 KiB | 1 MiB | 4 MiB | 16 MiB | 64 MiB |", "links", links),
    table(
        "| family | back ends | greedy equal to transformers | exact under speculation past the "
        "window | exact under chunking | rollback | fork | self-check at load |",
        "families",
        families,
    ),
    table(
        "| shape, numbers | context | this engine, torch | transformers, dynamic cache "
        "| transformers, static cache | over the faster | bandwidth bound |",
        "decode",
        decode,
    ),
    table(
        "| cache | sessions | turns | turn p50, first tenth | last tenth | K/V bytes "
        "| resident memory, last over first tenth |",
        "sessions",
        sessions,
    ),
    table("| sessions | 1 | 4 | 16 | 32 |", "sessions", crowds),
    table(
        "| nodes | loss | news | rounds to everybody, p50 | p99 | its bound | goal |",
        "membership",
        news,
    ),
    table(
        "| nodes | idle, bytes a second that a node sends | memory of its membership "
        "| a death: first to find it, p50, s | everybody, worst, s | deaths |",
        "membership",
        crowd_sizes,
    ),
    table(
        "| | tokens a second | first token | step mean | p50 | p95 | p99 | last over first tenth "
        "| cache bytes | peak memory |",
        "generation",
        generation,
    ),
    table(
        "| context | facts | full attention | sink 4 + window 64 | of the facts evicted |",
        TINY,
        recall,
    ),
    table(
        "| tokens a second | decoding | a prompt | together |",
        "published_speed",
        published_speeds,
    ),
    table("| shape, bfloat16 | side | a prompt, tokens a second |", "prompts", prompt_speeds),
    table(
        "| the published model | divergence, nats | equal choices, % | perplexity "
        "| facts recalled |",
        "weights_quality",
        weights_qualities,
    ),
    table("| tokens a second, messages of | 1 | 4 | 16 |", "typescript", typescript),
    table(
        "| sitting | minutes | turns | failed | turn p50, ms | p95 | p99 | resident MB | files "
        "| threads | sessions opened, closed | probes as at first |",
        "soak",
        soak,
    ),
)
