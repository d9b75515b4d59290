"""A model that a node is told to load, until it serves it."""

from __future__ import annotations

from kakeya import AsyncClient, LoadedModel, ModelNotFound, Role
from kakeya_fleet.node.cli.fleet.load_view import LoadView
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.shell.remedies import sentence


async def load(
    client: AsyncClient,
    view: LoadView,
    model: str,
    *,
    role: Role | None = None,
    weights: str = "",
    unload_after_seconds: float | None = None,
) -> LoadedModel:
    """Has the client's node serve `model`, and shows how that stands on `view`, which is closed.

    Raises `KakeyaError`, and `CommandFailed` for a model that is not there.
    """
    loading = client.fleet.load_model(
        model, role=role, weights=weights, unload_after_seconds=unload_after_seconds
    )
    try:
        async for progress in loading:
            view.take(progress)
    except ModelNotFound as error:
        # What mends it is not to load it.
        message = sentence(error.problem)
        raise CommandFailed(error.reason, message, metadata=error.metadata) from error
    finally:
        view.close()
    assert loading.loaded is not None  # the iteration came to its end
    return loading.loaded
