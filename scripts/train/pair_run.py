"""A training run of a drafter and of f_theta: what it begins with, in memory."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import scripts.train.python_corpus as python_corpus
from kakeya_fleet.engine.backends.dflash.version_2 import (
    ConvolutionShape,
    SelectorShape,
    Version2,
)
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    ProjectionConfig,
    RestoredLayer,
    Source,
    load_projection,
)
from kakeya_fleet.engine.models.digests import weights_digest
from scripts.eval.recall_task import RecallFormat, recall_format
from scripts.train.checkpoint import Progress, load_checkpoint
from scripts.train.drafter_model import Drafter, DrafterShape
from scripts.train.drafter_start import (
    context_regression,
    start_context,
    start_from,
    start_projection,
    without_version_2,
)
from scripts.train.pair_export import load_drafter
from scripts.train.pair_losses import Written
from scripts.train.rows import RowBatch, read_rows

START_ROWS = 48
MATRIX_RATE = 0.012
VECTOR_RATE = 3e-3
CONVOLUTION_RATE = 1e-3
TABLE_RATE = 5e-3
"""Of a selector's tables, whose rows are seldom met."""
CODE_RATE = 2e-3
"""Of what starts as a regression, `fc` and f_theta, times the root mean square of its weights."""


@dataclass
class Run:
    """A training run in memory."""

    target: PreTrainedModel
    drafter: Drafter
    projection: Projection | None
    optimizers: list[torch.optim.Optimizer]
    rows: RowBatch
    training: np.ndarray
    """Indices of the rows that are trained on."""
    held_out: np.ndarray
    code: np.ndarray
    """Ids of the training text; none where nothing is restored."""
    form: RecallFormat
    progress: Progress
    trained: nn.ModuleDict
    seen: dict[int, Written] = field(default_factory=dict)
    """Rows that the verifier has read, by index: reading them again costs as much as drafting."""


def drafter_shape(options: argparse.Namespace, target: PreTrainedModel) -> DrafterShape:
    """The drafter's shape beside `target`."""
    config = target.config
    taps = options.taps or list(range(config.num_hidden_layers))
    return DrafterShape(
        hidden=config.hidden_size,
        intermediate=options.intermediate,
        layers=options.layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        block_size=options.block_size,
        taps=tuple(taps),
        mask_token=options.mask_token,
        rope_theta=config.rope_parameters["rope_theta"],
        norm_eps=config.rms_norm_eps,
        version_2=_version_2(options) if options.version == 2 else None,
        vocabulary=config.vocab_size,
    )


def _version_2(options: argparse.Namespace) -> Version2:
    """What `options` ask of version 2; a published one's selector has as many candidates."""
    return Version2(
        ConvolutionShape(options.conv_taps, options.conv_group),
        SelectorShape(options.selector_rank, top_k=16, multiplier=1.0, softcap=None),
        confidence=None,
    )


def new_projection(
    options: argparse.Namespace, target: PreTrainedModel, drafter: Drafter
) -> Projection:
    """f_theta for `target`, untrained."""
    config, shape = target.config, drafter.shape
    source = Source(options.source)
    layers = target.model.layers
    normed = hasattr(layers[0].self_attn, "k_norm")
    made = Projection(
        ProjectionConfig(
            source=source,
            width=shape.hidden,
            rank=options.rank,
            layers=tuple(
                RestoredLayer(config.num_key_value_heads, config.head_dim, normed) for _ in layers
            ),
            norm_eps=config.rms_norm_eps,
            rotary_scaling=float(target.model.rotary_emb.attention_scaling),
            verifier_model_id=options.target.name,
            verifier_digest=weights_digest(options.target),
            encoder_digest="",
            drafter_layers=shape.layers if source is Source.KEYS_VALUES else 0,
            drafter_kv_heads=shape.kv_heads if source is Source.KEYS_VALUES else 0,
            drafter_head_dim=shape.head_dim if source is Source.KEYS_VALUES else 0,
        )
    )
    made.inverse_frequencies.copy_(target.model.rotary_emb.inv_freq)
    if normed:
        made.key_norms.copy_(torch.stack([layer.self_attn.k_norm.weight for layer in layers]))
    return made


def build_optimizers(trained: nn.Module, share: float = 1.0) -> list[torch.optim.Optimizer]:
    """Muon for the drafter's layers, AdamW for the rest; each group keeps its peak rate.

    `share` times what a new drafter is trained by.
    """
    matrices, vectors, code = [], [], list[dict[str, object]]()
    convolutions, tables = [], []
    for name, parameter in trained.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif "_conv." in name:
            convolutions.append(parameter)
        elif name.endswith("_codebook"):
            tables.append(parameter)
        elif name.startswith("drafter.layers"):
            matrices.append(parameter)
        else:
            rate = CODE_RATE * parameter.detach().square().mean().sqrt().item()
            code.append({"params": [parameter], "lr": rate})
    groups = [
        {"params": vectors, "lr": VECTOR_RATE},
        {"params": convolutions, "lr": CONVOLUTION_RATE},
        {"params": tables, "lr": TABLE_RATE},
        *code,
    ]
    adam = torch.optim.AdamW(
        [group for group in groups if group["params"]], betas=(0.9, 0.98), weight_decay=0.0
    )
    optimizers: list[torch.optim.Optimizer] = [adam]
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.0))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_rate"] = share * group["lr"]
    return optimizers


def start_from_map(projection: Projection, begun: Projection) -> None:
    """Copy the weights of a map of the same shape for the same verifier.

    Raises:
        ValueError: it is another's, or of another size.
    """
    names = (each.name for each in fields(ProjectionConfig) if each.name != "encoder_digest")
    for name in names:
        theirs, mine = getattr(begun.config, name), getattr(projection.config, name)
        if theirs != mine:
            message = f"the map to start from has the {name} {theirs}, this run's has {mine}"
            raise ValueError(message)
    projection.load_state_dict(begun.state_dict())


def first_rows(run_rows: RowBatch, device: torch.device) -> list[torch.Tensor]:
    """A few of the verifier's own rows, [n] each, to start from."""
    index = range(0, len(run_rows.tokens), max(1, len(run_rows.tokens) // START_ROWS))
    return [
        torch.from_numpy(run_rows.tokens[row, : run_rows.lengths[row]].astype(np.int64)).to(device)
        for row in index
    ]


def prepare(options: argparse.Namespace) -> Run:
    """Build the run that `options` ask for, from its checkpoint where there is one."""
    device = torch.device(options.device)
    kind = getattr(torch, options.target_dtype)
    target = AutoModelForCausalLM.from_pretrained(options.target, dtype=kind)
    target = target.to(device).eval().requires_grad_(requires_grad=False)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    files = python_corpus.read_corpus(options.corpus)
    training, _ = python_corpus.split(files)
    torch.manual_seed(options.seed)
    rows = read_rows(options.rows)
    if options.drafter is None:
        drafter = Drafter(drafter_shape(options, target)).to(device)
        start_from(drafter, target)
        start_context(drafter, target, first_rows(rows, device))
    else:
        drafter = load_drafter(options.drafter)
        if options.as_version_1:
            drafter = without_version_2(drafter)
        drafter = drafter.to(device)
    if options.train == "restorer":
        drafter.requires_grad_(requires_grad=False)
    projection = None
    if options.train != "drafter":
        projection = new_projection(options, target, drafter).to(device)
        for name, parameter in projection.named_parameters():
            # Those of the drafter inside the map are the drafter's own; see restored_forward.
            parameter.requires_grad_("drafter" not in name)
        if options.restorer is not None:
            start_from_map(projection, load_projection(options.restorer))
        elif projection.config.source is Source.FEATURES:
            found = context_regression(drafter, target, first_rows(rows, device))
            start_projection(projection, found)
    code = python_corpus.encode(tokenizer, training if projection is not None else [])
    trained = nn.ModuleDict({"drafter": drafter})
    if projection is not None:
        trained["projection"] = projection
    optimizers = build_optimizers(trained, options.rate_share)
    fresh = Progress(options.train, options.seed, python_corpus.digest(files))
    progress = load_checkpoint(options.work, trained, optimizers)
    if progress is not None:
        progress.require_same_run(fresh)
    return Run(
        target,
        drafter,
        projection,
        optimizers,
        rows,
        np.flatnonzero(~rows.held_out),
        np.flatnonzero(rows.held_out),
        code,
        recall_format(tokenizer),
        progress or fresh,
        trained,
    )
