"""Numbers of the documents that were asked for, not measured: settings, sizes, goals.

Each is a stretch of text that stands in its document; one that no longer does is told, so that
this list does not outlive what it excuses.
"""

from __future__ import annotations

from scripts.write.figures_register import FAULTS, FIGURES, README

SETTINGS = {
    FAULTS: (),
    README: (
        "3.8 M parameters",
        "0 to 20 ms added",
        "needle at 2,000 tokens",
        "SmolLM2-135M, decoding: bfloat16, int8, int4",
        "llama.cpp on the same model: BF16, Q8_0, Q4_0",
        "what int8 and int4 cost in quality",
        "2,048 to 131,072 tokens",
        "archive over 10 Gbit/s + 0.1 ms",
        "at 8,192 tokens",
        "64 MiB to another process",
        "the goal is 4 hours",
        "50 nodes streaming",
    ),
    FIGURES: (
        # The shipped pair, the loop.
        "1.44 M parameters",
        "sink 4 and window 64",
        "96 tokens of prompt and 200 of answer",
        "a window of 64 tokens",
        "right with probability 0.8",
        "0, 1, 5 and 20 ms added",
        "goal 0.9",
        # Needles, restoring.
        "200 cases a context",
        "one vector of 256 numbers",
        "keys and values would be 1,024",
        "windows of 32, 64 and 96 tokens",
        "128 times for single tokens of `tiny`, 8 times for blocks of 16",
        "Goal 0.6",
        # Archives, links, families.
        "Goals: 0.7 of full attention's speed at 8,192",
        "K/V budget, 8 GiB here",
        "behind 1,024 positions of this shape in",
        "sink 4 and window 16, 400 tokens",
        "Gemma 3 and 4 and",
        # Membership.
        "10 simulated hours of 50 nodes at 30 % loss",
        "`log2 N + 4` without loss and `1.4 log2 N + 5` with",
        # Decoding, sessions, generation, the verifier.
        "a turn appends 15 tokens and generates 15",
        "nothing beyond 2,048",
        "(With `full`, 32 sessions",
        "64 prompt tokens and 128 new ones",
        "3.8 M parameters",
        "Hits of 100 cases",
        "for a model of a billion parameters: 15 s, and 1.15 times its weights",
        # Real text, a long conversation.
        "a sink of 4 positions and a window of 256, reads pages",
        "of 576, 256 and 128 numbers",
        "answers of 700 tokens",
        "a window of 256 positions; answers",
    ),
}
