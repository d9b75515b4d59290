"""How far sessions that pack are from full attention, as they are served.

    python -m scripts.eval.packed_quality --out benchmarks/packed_quality.json

On the texts of `scripts.eval.codec_quality`, and by its measures: but the packed cache itself
attends to its tiles as they lie, where that script packs and unpacks numbers in a cache that is
not packed. Of each codec that a quality may come to have.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kakeya.text import TextCodec
from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.fleet.placement.codec_ladder import LADDER
from kakeya_fleet.node.planning.kv_quality import bits_of
from scripts.bench.machine import command, machine, write_report
from scripts.eval.codec_quality import tail_divergence
from scripts.eval.quality_sides import OwnSide
from scripts.eval.weights_quality import compared, perplexity, places_of, recalled, texts


class PackedSide(OwnSide):
    """A verifier whose cache packs by a codec."""

    def __init__(self, verifier: Verifier, codec: str) -> None:
        super().__init__(verifier)
        self._codec = codec

    def cache_of(self, positions: int) -> KvCache:
        """One of kind `packed`, with the sink and the window of sessions."""
        spec = CacheSpec(
            CacheKind.PACKED, capacity=positions, sink=TILE, window=TILE, codec=self._codec
        )
        return self._verifier.allocate(spec)


def main(words: Sequence[str] | None = None) -> int:
    """Runs it all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tokens", type=int, default=1024, help="of a window, one a page")
    parser.add_argument("--needles", type=int, default=20)
    parser.add_argument("--needle-tokens", type=int, default=700)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    folder = resolve_model(arguments.model)
    text = TextCodec.from_folder(folder.path)
    verifier = load_verifier(folder, dtype="bfloat16")
    windows, needles = texts(text, arguments.tokens, arguments.needles, arguments.needle_tokens)
    side = OwnSide(verifier)
    own = [side.log_probabilities(window, places_of(window)) for window in windows]
    report: dict[str, object] = {
        "none": {"perplexity": perplexity(own, windows), "needles": recalled(side, needles, text)}
    }
    for codec in LADDER:
        packed = PackedSide(verifier, codec)
        found = [packed.log_probabilities(window, places_of(window)) for window in windows]
        report[codec] = {
            "bits_a_value": bits_of(codec),
            **compared(own, found),
            "divergence_of_one_in_1000": tail_divergence(own, found),
            "perplexity": perplexity(found, windows),
            "needles": recalled(packed, needles, text),
        }
        print(codec, report[codec])
    write_report(
        arguments.out,
        {
            "command": command(__file__),
            "machine": machine(),
            "model": arguments.model,
            "tokens": sum(len(window) for window in windows),
            "places": sum(len(places_of(window)) for window in windows),
            "of_codecs": report,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
