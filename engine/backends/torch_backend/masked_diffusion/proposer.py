"""The masked diffusion proposer: drafts by denoising behind the latest tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.context import (
    Context,
    WholeContext,
)
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.denoising import denoise
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.frozen_prefix import FrozenContext
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.model import MaskedModel
from kakeya_fleet.engine.contracts.draft import Draft, EagerDraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.proposer_info import ProposerInfo


@dataclass(frozen=True, slots=True)
class MaskedDiffusionInfo(ProposerInfo):
    """What a masked diffusion proposer is.

    `prediction_shift` is the declared one; `shift_checked` says whether the
    model's own predictions bear it out. `step_count` is the default of denoising
    steps, `window` the positions of one pass, context and block together;
    `frozen_chunk` is that of `FrozenContext`, 0 where every pass computes all.
    """

    mask_token_id: int = 0
    prediction_shift: int = 0
    shift_checked: bool = False
    step_count: int = 1
    window: int = 0
    frozen_chunk: int = 0


class MaskedDiffusionState(EagerDraftState):
    """One session's text and how it is drafted on. Owned by one thread at a time."""

    def __init__(
        self,
        context: Context,
        info: MaskedDiffusionInfo,
        confidence_threshold: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._context = context
        self._info = info
        self._confidence_threshold = confidence_threshold
        self._clock = clock
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        return self._length

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens to the history."""
        self._length += len(token_ids)
        self._context.extend(token_ids)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,  # noqa: ARG002 the likeliest
    ) -> Draft:
        """Drafts behind history + `assumed`; fewer than `block_size` only in a narrow window.

        What it sees of them is the latest that fit into the window beside the
        block. Raises `DraftFailed` (OUT_OF_VOCABULARY) when one of those is no id
        of this model.
        """
        began = self._clock()
        count = min(block_size, self._info.window - 1)
        view = self._context.view(assumed, count)
        found = denoise(
            view.predictor,
            view.token_ids,
            count,
            step_count or self._info.step_count,
            self._confidence_threshold,
        )
        seconds = self._clock() - began
        return Draft(
            found.token_ids,
            compute_seconds=seconds,
            round_trip_seconds=seconds,
            diffusion_step_count=found.step_count,
            forward_pass_count=found.step_count,
        )


class MaskedDiffusionProposer:
    """A loaded masked model as a proposer. Its states share one thread."""

    def __init__(
        self,
        model: MaskedModel,
        info: MaskedDiffusionInfo,
        confidence_threshold: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._info = info
        self._confidence_threshold = confidence_threshold
        self._clock = clock

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return self._info.model_id

    @property
    def info(self) -> MaskedDiffusionInfo:
        """What it is."""
        return self._info

    @property
    def encoder(self) -> None:
        """None: it needs no context vectors."""
        return

    def open(self, prefix: Sequence[int]) -> MaskedDiffusionState:
        """State for one session whose history is `prefix`."""
        info = self._info
        context: Context = WholeContext(self._model, info.vocabulary_size, info.window)
        if info.frozen_chunk:
            context = FrozenContext(self._model, info.frozen_chunk, info.window)
        state = MaskedDiffusionState(context, info, self._confidence_threshold, self._clock)
        state.commit(prefix)
        return state
