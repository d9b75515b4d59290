"""Train a tiny masked diffusion model that copies what it has seen before.

    python -m scripts.train.masked_diffusion --out MODEL
    python -m scripts.train.masked_diffusion --out MODEL --shift 1 --steps 2000 --work WORK

The text is patterns of random ids, repeated: nothing of it can be known by heart, all of it
follows from the context. The model is Qwen 3's layers with bidirectional attention; the loss is
that of masked diffusion (Sahoo et al., "Simple and effective masked diffusion language models",
2024): of the tokens masked at a random rate, at the declared prediction shift. A batch is a
function of (seed, step): started again with the same work folder, a run goes on from its last
checkpoint and ends with the weights that it would have had without the interruption.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from scripts.train.bar import TrainingBar

CHECKPOINT = "checkpoint.pt"
MANIFEST = "training.json"
CHECKPOINT_EVERY = 200
WARM_STEPS = 20


@dataclass(frozen=True)
class Settings:
    """All that a run's weights depend on."""

    shift: int = 0
    """0: the row of a position predicts its token; 1: that of the position before."""
    seed: int = 0
    steps: int = 400
    vocabulary: int = 64
    """Ids; the last is the mask."""
    hidden: int = 48
    layers: int = 2
    heads: int = 3
    positions: int = 512
    """That the config says it has; it is trained on `length`."""
    length: int = 32
    """Tokens of a training text."""
    rows: int = 32
    """Texts of a batch."""
    longest_block: int = 16
    """Masks at the end of every second text, at most; fewer than `length`."""
    shortest_period: int = 3
    longest_period: int = 8
    peak_rate: float = 4e-3

    @property
    def mask(self) -> int:
        """The mask's id."""
        return self.vocabulary - 1


def build_model(settings: Settings) -> Qwen3ForCausalLM:
    """A randomly initialised bidirectional model in float32; the same for the same seed."""
    torch.manual_seed(settings.seed)
    config = Qwen3Config(
        vocab_size=settings.vocabulary,
        hidden_size=settings.hidden,
        intermediate_size=2 * settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        head_dim=settings.hidden // settings.heads,
        max_position_embeddings=settings.positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation="sdpa",
    )
    config.is_causal = False
    model = Qwen3ForCausalLM(config)
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    return model


def make_texts(settings: Settings, rows: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Repeated patterns, int64 of shape (rows, length); the ids of one pattern are distinct."""
    texts = np.empty((rows, length), dtype=np.int64)
    for row in texts:
        period = int(rng.integers(settings.shortest_period, settings.longest_period + 1))
        pattern = rng.permutation(settings.mask)[:period]
        row[:] = np.resize(pattern, length)
    return texts


def make_batch(settings: Settings, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The texts of `step` and which of their tokens are masked, both (rows, length)."""
    rng = np.random.Generator(np.random.Philox(key=[settings.seed, step]))
    texts = make_texts(settings, settings.rows, settings.length, rng)
    rates = rng.uniform(0.05, 0.5, (settings.rows, 1))
    masked = rng.random(texts.shape) < rates
    # Every second text as drafting has it: a block at the end, some of it filled.
    blocks = rng.integers(1, settings.longest_block + 1, (settings.rows, 1))
    inside = np.arange(settings.length) >= settings.length - blocks
    left = rng.uniform(0.2, 1.2, (settings.rows, 1))
    masked[::2] = (inside & (rng.random(texts.shape) < left))[::2]
    # With shift 1 the first position has no row that predicts it.
    masked[:, 0] = False
    masked[:, -1] |= ~masked.any(-1)
    return torch.from_numpy(texts), torch.from_numpy(masked)


def masked_loss(
    model: Qwen3ForCausalLM, texts: torch.Tensor, masked: torch.Tensor, settings: Settings
) -> torch.Tensor:
    """Mean nats of a masked token, at the declared shift."""
    logits = model(texts.masked_fill(masked, settings.mask), use_cache=False).logits
    if settings.shift:
        logits, texts, masked = logits[:, :-1], texts[:, 1:], masked[:, 1:]
    return functional.cross_entropy(logits[masked], texts[masked])


def rate_at(settings: Settings, step: int) -> float:
    """The learning rate: a short rise, then a straight way down."""
    rise = min(1.0, (step + 1) / WARM_STEPS)
    return settings.peak_rate * rise * (1.0 - step / settings.steps)


def train(
    settings: Settings,
    work: Path | None = None,
    *,
    stop_at: int | None = None,
    is_shown: bool = False,
) -> tuple[Qwen3ForCausalLM, list[float]]:
    """The model after all steps, or after `stop_at`, and the loss of each step done now.

    Raises:
        ValueError: the checkpoint in `work` is of other settings.
    """
    model = build_model(settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=0.0)
    first = load_checkpoint(work, settings, model, optimizer) if work else 0
    losses = []
    model.train()
    last = min(settings.steps, stop_at or settings.steps)
    steps = range(first, last)
    with TrainingBar(settings.steps, first, is_shown=is_shown, line_every=CHECKPOINT_EVERY) as bar:
        for step in steps:
            losses.append(_train_step(model, optimizer, settings, step))
            bar.advance()
            done = step + 1
            if work and (done % CHECKPOINT_EVERY == 0 or done == last):
                save_checkpoint(work, settings, model, optimizer, done)
    return model.eval(), losses


def _train_step(
    model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer, settings: Settings, step: int
) -> float:
    """One forward, backward and update; the loss."""
    texts, masked = make_batch(settings, step)
    loss = masked_loss(model, texts, masked, settings)
    loss.backward()  # type: ignore[no-untyped-call]
    for group in optimizer.param_groups:
        group["lr"] = rate_at(settings, step)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.item())


def save_checkpoint(
    work: Path,
    settings: Settings,
    model: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    step: int,
) -> None:
    """Write the checkpoint into `work` whole or not at all."""
    work.mkdir(parents=True, exist_ok=True)
    partial = work / f"{CHECKPOINT}.partial"
    state = {
        "settings": dataclasses.asdict(settings),
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    torch.save(state, partial)
    os.replace(partial, work / CHECKPOINT)


def load_checkpoint(
    work: Path, settings: Settings, model: Qwen3ForCausalLM, optimizer: torch.optim.Optimizer
) -> int:
    """The steps done of the run in `work`, put into `model` and `optimizer`; 0 where there is none.

    Raises:
        ValueError: it is of other settings.
    """
    path = work / CHECKPOINT
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    if state["settings"] != dataclasses.asdict(settings):
        message = f"{path} is of other settings: {state['settings']}"
        raise ValueError(message)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def export(folder: Path, model: Qwen3ForCausalLM, settings: Settings, **figures: float) -> None:
    """Write the model, a tokenizer of its ids and the manifest into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    path = folder / "config.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    entries |= {
        "is_causal": False,
        "mask_token_id": settings.mask,
        "prediction_shift": settings.shift,
    }
    path.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    vocabulary = {f"w{index}": index for index in range(settings.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.save(str(folder / "tokenizer.json"))
    manifest = {
        "settings": dataclasses.asdict(settings),
        "parameter_count": sum(parameter.numel() for parameter in model.parameters()),
        "files": {name: sha256(folder / name) for name in ("model.safetensors", "tokenizer.json")},
        "figures": figures,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    text = json.dumps(manifest, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def sha256(path: Path) -> str:
    """The digest of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Train and export as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the model")
    parser.add_argument("--work", type=Path, help="folder for checkpoints; none without it")
    parser.add_argument("--shift", type=int, choices=(0, 1), default=Settings.shift)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--stop-at", type=int, help="end this time after that step")
    parser.add_argument("--hidden", type=int, default=Settings.hidden)
    parser.add_argument("--layers", type=int, default=Settings.layers)
    options = parser.parse_args()
    settings = Settings(
        shift=options.shift,
        seed=options.seed,
        steps=options.steps,
        hidden=options.hidden,
        layers=options.layers,
    )
    began = time.monotonic()
    model, losses = train(settings, options.work, stop_at=options.stop_at, is_shown=True)
    seconds = time.monotonic() - began
    if options.stop_at and options.stop_at < settings.steps:
        print(f"stopped at step {options.stop_at} of {settings.steps}: nothing exported")
        return
    last = losses[-50:]
    loss = sum(last) / len(last) if last else float("nan")
    export(options.out, model, settings, loss=round(loss, 4), wall_seconds=round(seconds, 1))
    print(f"{options.out}: {settings.steps} steps, loss {loss:.3f} nats, {seconds:.1f} s")


if __name__ == "__main__":
    main()
