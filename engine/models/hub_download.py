"""Downloads of model files from the hub into its usual cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from kakeya_fleet.engine.errors import ModelNotFound

Progress = Callable[[int, int], None]
"""Hears of (done bytes, total bytes). The total may grow as files are found."""


def download(repository: str, patterns: tuple[str, ...], progress: Progress | None) -> Path:
    """The local snapshot of the files of `repository` that match `patterns`.

    Raises `ModelNotFound` with the cause and the mend: no network, offline and
    not cached, no such repository, a gated one, an answer of the hub.
    """
    # Takes 0.3 s to import, and only a download needs it.
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError  # noqa: PLC0415

    try:
        return Path(
            snapshot_download(
                repository, allow_patterns=list(patterns), tqdm_class=_silent_bar(progress)
            )
        )
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ModelNotFound(
            f"no model {repository!r}: {_cause(repository, error)}", model=repository
        ) from error


def downloaded(repository: str, patterns: tuple[str, ...]) -> Path | None:
    """As `download`, of what lies in the cache already; None where nothing does."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - see `download`
    from huggingface_hub.errors import (  # noqa: PLC0415
        HFValidationError,
        LocalEntryNotFoundError,
    )

    try:
        return Path(
            snapshot_download(repository, allow_patterns=list(patterns), local_files_only=True)
        )
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _cause(repository: str, error: Exception) -> str:
    """What went wrong and how to mend it, in a sentence."""
    from huggingface_hub import constants  # noqa: PLC0415 - see `download`
    from huggingface_hub.errors import (  # noqa: PLC0415
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return (
            f"the hub guards it; accept its terms at {constants.ENDPOINT}/{repository} "
            "and set HF_TOKEN"
        )
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such repository, or it is private; check the id, or set HF_TOKEN"
    if isinstance(error, HFValidationError):
        return f"not a valid hub id ({error}); ids are organisation/name"
    if isinstance(error, HfHubHTTPError):
        return f"the hub answered {error.response.status_code}; try again later"
    if isinstance(error, LocalEntryNotFoundError):
        if constants.HF_HUB_OFFLINE:
            return (
                f"HF_HUB_OFFLINE is set and {constants.HF_HUB_CACHE} does not hold it; "
                "unset HF_HUB_OFFLINE, or give a folder"
            )
        return (
            f"{constants.ENDPOINT} cannot be reached and {constants.HF_HUB_CACHE} does not hold "
            "it; connect to the network, or give a folder"
        )
    return f"the download failed ({error}); check the network and the disk's free space"


def _silent_bar(progress: Progress | None) -> type:
    """A progress bar class that draws nothing and tells `progress` of bytes.

    The hub's client opens three bars: bytes received, bytes written, files
    done. Only bytes written are told; their bar is the one whose text speaks
    of reconstruction.
    """
    from tqdm.std import tqdm  # type: ignore[import-untyped]  # noqa: PLC0415 - see `download`

    lock = Lock()

    class SilentBar(tqdm):  # type: ignore[misc]
        """Counts, and draws nothing."""

        def __init__(self, *arguments: object, **options: object) -> None:
            options["gui"] = True  # the only mode of tqdm that never writes to a terminal
            super().__init__(*arguments, **options)
            self.told = str(options.get("desc", "")).startswith("Reconstructing")

        def update(self, n: float | None = 1) -> None:
            """Counts `n` more."""
            with lock:
                self.n += n or 0
                if self.told and progress is not None:
                    progress(int(self.n), int(self.total or 0))

        def display(self, *_: object, **__: object) -> None:
            """Draws nothing."""

        def refresh(self, *_: object, **__: object) -> None:
            """Draws nothing."""

        def close(self) -> None:
            """Draws nothing."""

    return SilentBar
