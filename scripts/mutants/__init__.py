"""Faults that the tests must find, one a promise or more: see docs/promises.md.

Each is the smallest change that a slip of the hand would make, in the file that keeps
the promise, and stands in the module of that file's room. Where the file is rewritten,
its mutants are rewritten with it.
"""

from scripts.mutants import (
    drafts,
    engine,
    fleet,
    membership,
    models,
    node,
    sdks,
    speculation,
    trust,
)
from scripts.mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant"]

MUTANTS = (
    *drafts.MUTANTS,
    *engine.MUTANTS,
    *fleet.MUTANTS,
    *membership.MUTANTS,
    *models.MUTANTS,
    *node.MUTANTS,
    *sdks.MUTANTS,
    *speculation.MUTANTS,
    *trust.MUTANTS,
)
