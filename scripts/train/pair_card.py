"""The card of a drafter and its f_theta, written from the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_CARD = """\
---
license: other
license_name: psf-2.0
license_link: https://docs.python.org/3/license.html
language: code
tags: [dflash, speculative-decoding, block-diffusion]
---

# {name}: a drafter and a restorer for `{target}`

A block-diffusion drafter in DFlash's format (version 1) of {drafter:.2f} M parameters: from
context vectors, made of the verifier's hidden states, it guesses a block of up to {guesses} tokens
in one pass. It has no embedding and no head; it uses those of `{target}` (weights {digest}...), the
only verifier that it was trained for. `restorer/` is f_theta, {restorer:.2f} M parameters: a linear
map from the same context vectors to the verifier's keys and values in all layers, for positions
that have left its window. An archive makes keys and values of the vectors as they come, and keeps
those: less is deposited, and as much is kept as if keys and values had come.

## Training

```sh
python -m scripts.train.rows --target engine/shipped/{target} --out ROWS --batches {batches}
python -m scripts.train.pair --target engine/shipped/{target} --rows ROWS --work WORK \\
  --train {train} --steps {planned} --seed {seed}
python -m scripts.train.pair --target engine/shipped/{target} --rows ROWS --work WORK \\
  --export engine/shipped/{name}
```

{steps:,} steps, {tokens:.1f} M tokens, {minutes:.0f} minutes on {threads} thread. The drafter was
distilled on what `{target}` itself wrote behind stretches of the Python standard library (PSF-2.0);
f_theta was trained with it, in one loss: the error of keys and values, and the gap of the logits
against full attention on the path that it serves, with a sink of 4 tokens and windows of 32, 64 and
96, on stretches of the same library with one fact of the recall task in them. How it does on other
text, other forms of facts and other windows was not measured. `training.json` has the hashes of all
inputs and files.
"""


def write_card(folder: Path, manifest: dict[str, Any]) -> None:
    """Write README.md into `folder`."""
    training, target = manifest["training"], manifest["target"]
    text = _CARD.format(
        name=folder.name,
        target=target["model_id"],
        digest=target["weights_digest"][:12],
        drafter=manifest["parameters"]["drafter"] / 1e6,
        restorer=manifest["parameters"]["restorer"] / 1e6,
        guesses=manifest["block_size"] - 1,
        batches=len(training["row_files"]),
        train=training["train"],
        planned=training["planned_steps"],
        seed=training["seed"],
        steps=training["steps"],
        tokens=training["tokens"] / 1e6,
        minutes=training["wall_seconds"] / 60,
        threads=training["threads"],
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
