"""Faults of `sdks/`: the clients."""

from scripts.mutants.mutant import Mutant

MUTANTS = (
    # ---- Nothing is lost
    Mutant(
        "a digest not compared when a session goes on elsewhere",
        "sdks/python/kakeya/successor.py",
        "and there.weights_digest == offer.weights_digest",
        "",
        ("tests/sdk/test_resume.py",),
    ),
)
