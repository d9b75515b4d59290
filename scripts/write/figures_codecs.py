"""What docs/figures.md says of packed keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Report, Said, Table
from scripts.write.figures_tables import line

REPORT = "codec_quality"


def texts(found: Report) -> Sequence[str]:
    """Tokens of text, places that were looked at, and tokens of a prompt with a fact."""
    return [f"{found['tokens']:,}", f"{found['places']:,}", f"{found['needle_tokens']:,}"]


def rows(found: Report) -> list[str]:
    """A row a codec, the cache as it is first."""
    return [
        line(
            name,
            f"{own['bits_a_value']:.2f}" if "bits_a_value" in own else "",
            f"{own['divergence_nats']:.5f}" if "divergence_nats" in own else "",
            f"{own['divergence_of_one_in_1000']:.4f}" if "divergence_nats" in own else "",
            f"{100 * own['same_choice']:.1f}" if "same_choice" in own else "",
            f"{own['perplexity']:.2f}",
            f"{own['needles']['hits']} of {own['needles']['cases']}",
        )
        for name, own in found["of_codecs"].items()
    ]


ARCHIVES = "packed_archives"


def settings(found: Report) -> Sequence[str]:
    """Rounds, and tokens of the window and of an answer."""
    return [str(found["rounds"]), f"{found['window']:,}", str(found["answer_tokens"])]


def sessions(found: Report) -> list[str]:
    """A row a length of context and kind of session."""
    return [
        line(
            f"{int(context):,}",
            kind,
            own["codec"],
            f"{own['prompt_seconds']:.1f}",
            f"{own['tokens_per_second']:.1f}",
            f"{own['evicted_bytes'] / 2**20:.1f}" if own["evicted_positions"] else "",
            str(own["equal_tokens"]),
        )
        for context, kinds in found["by_context"].items()
        for kind, own in kinds.items()
    ]


SERVED = "packed_quality"


def served_quality(found: Report) -> Sequence[str]:
    """Nats, and equal choices, of `high` and of `economy`."""
    high, economy = found["of_codecs"]["kvarn4"], found["of_codecs"]["kvarn3"]
    return [
        f"{high['divergence_nats']:.4f}",
        f"{100 * high['same_choice']:.1f}",
        f"{economy['divergence_nats']:.4f}",
        f"{100 * economy['same_choice']:.1f}",
    ]


def context_a_byte(found: Report) -> Sequence[str]:
    """Times the context of 16 bits, nats and bits a number, of `kvarn4v3`."""
    own = found["of_codecs"]["kvarn4v3"]
    bits = own["bits_a_value"]
    return [f"{16 / bits:.2f}", f"{own['divergence_nats']:.4f}", f"{bits:.2f}"]


PACKING = "packing"


def packing_settings(found: Report) -> Sequence[str]:
    """Positions, heads, channels of each, and rounds."""
    shape = (found["positions"], found["heads"], found["head_dim"], found["rounds"])
    return [f"{number:,}" for number in shape]


def packing_times(found: Report) -> list[str]:
    """A row a codec: milliseconds of the compiled library, and of numpy."""
    of_threads = found["milliseconds_of_threads"]
    one, all_cores = of_threads["1"], of_threads[max(of_threads, key=int)]
    return [
        line(
            name,
            f"{own['pack']:.1f}",
            f"{own['unpack']:.2f}",
            f"{all_cores[name]['unpack']:.2f}",
            f"{own['memory']:.2f}",
            f"{own['pack_numpy']:.0f}",
            f"{own['unpack_numpy']:.0f}",
        )
        for name, own in one.items()
    ]


OWN = "packed_full"


def own_settings(found: Report) -> Sequence[str]:
    """Rounds, and steps of each."""
    return [str(found["rounds"]), str(found["steps"])]


def own_sessions(found: Report) -> list[str]:
    """A row a length of context and kind of cache."""
    return [
        line(
            f"{int(context):,}",
            kind,
            f"{own['step_ms']:.1f}",
            f"{kinds['full']['step_ms'] / own['step_ms']:.2f}",
            f"{own['kv_bytes'] / 2**20:.1f}",
            f"{kinds['full']['kv_bytes'] / own['kv_bytes']:.2f}",
            f"{own['prompt_seconds']:.2f}" if "prompt_seconds" in own else "",
        )
        for context, kinds in found["by_context"].items()
        for kind, own in kinds.items()
    ]


TIERS = "codec_tiers"


def tier_texts(found: Report) -> Sequence[str]:
    """Tokens of text, and places that were looked at."""
    return [f"{found['tokens']:,}", f"{found['places']:,}"]


def tiers(found: Report) -> list[str]:
    """A row a way of keeping what is old."""
    return [
        line(
            name,
            f"{own['bits_a_value']['8192']:.2f}",
            f"{own['bits_a_value']['32768']:.2f}",
            f"{own['divergence_nats']:.4f}",
            f"{own['divergence_of_one_in_1000']:.3f}",
            f"{100 * own['same_choice']:.1f}",
        )
        for name, own in found["of_ways"].items()
    ]


LAYERS = "codec_layers"


def layer_texts(found: Report) -> Sequence[str]:
    """Tokens of text, and pages of it that layers were chosen on, and all."""
    return [f"{found['tokens']:,}", str(len(found["chosen_on"])), str(len(found["pages"]))]


def chosen_layers(found: Report) -> list[str]:
    """A row a way of giving layers their codecs."""
    return [
        line(
            name if name.endswith(" all") else f"{name}, else {pair.split(', ')[1]}",
            f"{own['bits_a_value']:.2f}",
            f"{own['divergence_nats']:.5f}",
            f"{own['divergence_of_one_in_1000']:.3f}",
            f"{100 * own['same_choice']:.1f}",
        )
        for pair, of in found["of_pairs"].items()
        for name, own in of["of_ways"].items()
    ]


def chosen_gain(found: Report) -> Sequence[str]:
    """The divergence of the sensitive half over that of the best uniform choice of as many bits."""
    ways = next(iter(found["of_pairs"].values()))["of_ways"]
    (own,) = (
        way["divergence_nats"]
        for name, way in ways.items()
        if name.endswith("sensitive keys and values")
    )
    uniform = min(
        way["divergence_nats"]
        for name, way in ways.items()
        if name.endswith(("all keys", "all values"))
    )
    return [f"{own / uniform:.2f}"]


CODECS = (
    Said(
        FIGURES,
        "`python -m scripts.eval.codec_layers` "
        "([benchmarks/codec_layers.json](../benchmarks/codec_layers.json)), {} tokens, chosen on "
        "{} of {} pages and told of the others.",
        LAYERS,
        layer_texts,
    ),
    Said(
        FIGURES,
        "half have {} times the divergence of the better of four bits for all keys and for all "
        "values",
        LAYERS,
        chosen_gain,
    ),
    Table(
        FIGURES,
        "| by layer | bits a number | divergence, nats | that of one in 1,000 | equal choices, % |",
        LAYERS,
        chosen_layers,
    ),
    Said(FIGURES, "on {} tokens of it, behind {} late places.", TIERS, tier_texts),
    Table(
        FIGURES,
        "| what is packed | bits a number of 8,192 | of 32,768 | divergence, nats "
        "| that of one in 1,000 | equal choices, % |",
        TIERS,
        tiers,
    ),
    Said(
        FIGURES,
        "`high` moves distributions by {} nats and keeps {} % of the choices, `economy` by {} nats "
        "and {} %.",
        SERVED,
        served_quality,
    ),
    Table(
        FIGURES,
        "| as served | bits a number | divergence, nats | that of one in 1,000 "
        "| equal choices, % | perplexity | facts recalled |",
        SERVED,
        rows,
    ),
    Said(
        FIGURES,
        "an archive's byte holds {} times the context, at {} nats and {} bits",
        SERVED,
        context_a_byte,
    ),
    Table(
        FIGURES,
        "| codec | packed, ms | unpacked, ms | by all cores | new memory alone, ms "
        "| packed by numpy, ms | unpacked, ms |",
        PACKING,
        packing_times,
    ),
    Said(
        FIGURES,
        "What packs {} positions of a layer of {} heads of {} channels, medians of {} rounds",
        PACKING,
        packing_settings,
    ),
    Said(FIGURES, "{} rounds of {} steps a cache.", OWN, own_settings),
    Table(
        FIGURES,
        "| context, tokens | cache | a step, ms | times as fast | keys and values, MiB "
        "| context a byte, times | prompt, s |",
        OWN,
        own_sessions,
    ),
    Said(
        FIGURES,
        "{} rounds, a window of {} positions, answers of {} tokens.",
        ARCHIVES,
        settings,
    ),
    Table(
        FIGURES,
        "| context, tokens | session | codec | prompt, s | tokens a second | archive, MiB "
        "| tokens as with full attention |",
        ARCHIVES,
        sessions,
    ),
    Said(
        FIGURES,
        "on {} tokens of this repository's docs, behind {} places, and facts in prompts of {} "
        "tokens of them.",
        REPORT,
        texts,
    ),
    Table(
        FIGURES,
        "| keys and values | bits a number | divergence, nats | that of one in 1,000 "
        "| equal choices, % | perplexity | facts recalled |",
        REPORT,
        rows,
    ),
)
