"""A user's cache of a test's own, and what tests keep in the user's from one run to the next."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_cache_path

COMPILED = user_cache_path("kakeya") / "compiled"
"""As this process began, whatever a test sets later."""
EXACTNESS = user_cache_path("kakeya") / "exactness-of-tests"
"""What loads found out about models' exactness. A record's key has all that it depends on, the
engine's sources too: what changes is checked anew."""
RELEASES = user_cache_path("kakeya") / "releases-of-tests"
"""Sources of the release before, by its commit, with what Python compiled of them."""


def own_cache(folder: Path) -> str:
    """`folder` for XDG_CACHE_HOME: empty, with this user's compiled decoders.

    Their names are digests of what they are made of: seconds of a processor each.
    """
    COMPILED.mkdir(parents=True, exist_ok=True)
    link = folder / "kakeya" / COMPILED.name
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(COMPILED)
    return str(folder)
