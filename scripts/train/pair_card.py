"""The card of a drafter and its f_theta, written from the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CARD = """\
---
{licence}
tags: [dflash, speculative-decoding, block-diffusion]
---

# {name}: {what} for `{target}`

A block-diffusion drafter in DFlash's format (version {version}) of {drafter:.2f} M parameters: from
context vectors, made of the verifier's hidden states, it guesses a block of up to {guesses} tokens
in one pass. It has no embedding and no head; it uses those of `{target}` (weights {digest}...), the
only verifier that it was trained for.{restorer}

## Training

```sh
{commands}
```

{steps:,} steps, {tokens:.1f} M tokens, {minutes:.0f} minutes on {place}. {data}
`training.json` has the hashes of all inputs and files.
"""

_RESTORER = """ `restorer/` is f_theta, {restorer:.2f} M parameters: a linear
map from the same context vectors to the verifier's keys and values in all layers, for positions
that have left its window. An archive makes keys and values of the vectors as they come, and keeps
those: less is deposited, and as much is kept as if keys and values had come."""

_PYTHON_LICENCE = """\
license: other
license_name: psf-2.0
license_link: https://docs.python.org/3/license.html
language: code"""
_ANSWERS_LICENCE = """\
license: apache-2.0
language: en"""

_CONTINUATIONS_COMMANDS = """\
python -m scripts.train.rows --target engine/shipped/{target} --out ROWS --batches {batches}
python -m scripts.train.pair --target engine/shipped/{target} --rows ROWS --work WORK \\
  --train {train} --steps {planned} --seed {seed}
python -m scripts.train.pair --target engine/shipped/{target} --rows ROWS --work WORK \\
  --export engine/shipped/{name}"""
_ANSWERS_COMMANDS = """\
python -m scripts.train.prompts --target TARGET --out PROMPTS.npz{ask}
python -m scripts.train.answers --target TARGET --prompts PROMPTS.npz{asked} --out ROWS
python -m scripts.train.pair --target TARGET --rows ROWS --work WORK --train {train} \\
  --steps {planned} --seed {seed} {shape}{begun}
python -m scripts.train.pair --target TARGET --rows ROWS --work WORK --export {name}"""

_CONTINUATIONS = """The drafter was
distilled on what `{target}` itself wrote behind stretches of the Python standard library (PSF-2.0);
f_theta was trained with it, in one loss: the error of keys and values, and the gap of the logits
against full attention on the path that it serves, with a sink of 4 tokens and windows of 32, 64 and
96, on stretches of the same library with one fact of the recall task in them. How it does on other
text, other forms of facts and other windows was not measured."""
_ANSWERS = """The drafter was
distilled on {answers:.1f} M tokens that `{target}` itself answered, greedily and at temperature
0.7, to prompts of six kinds: chat, code, lists, rewriting, summaries and prose, of templates over
subjects, and over functions and paragraphs of Python packages with permissive licences. Rows
held out share no subject, document or package with those trained on.{of_asked}"""
_ASK = "\npython -m scripts.train.asked --target TARGET --out ASKED.npz"
_OF_ASKED = """ {share:.0%} of the answers
are to prompts that `{target}` asked itself: of these, those held out are other prompts, no more."""


def write_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write README.md into `folder`."""
    training, target = manifest["training"], manifest["target"]["model_id"]
    restorer = manifest["parameters"]["restorer"]
    are_answers, share = training["answer_tokens"] > 0, training["asked_share"]
    begun = training["begun_with"]
    values = {
        "name": folder.name,
        "target": target,
        "batches": len(training["row_files"]),
        "train": training["train"],
        "planned": training["planned_steps"],
        "seed": training["seed"],
        "shape": training["shape"],
        "answers": training["answer_tokens"] / 1e6,
        "begun": f" --drafter DRAFTER  # {begun[:12]}..." if begun else "",
        "ask": _ASK if share else "",
        "asked": " ASKED.npz" if share else "",
        "of_asked": _OF_ASKED.format(share=share, target=target) if share else "",
    }
    device, threads = training["device"], training["threads"]
    text = _CARD.format(
        name=folder.name,
        target=target,
        what="a drafter and a restorer" if restorer else "a drafter",
        version=manifest["version"],
        licence=_ANSWERS_LICENCE if are_answers else _PYTHON_LICENCE,
        digest=manifest["target"]["weights_digest"][:12],
        drafter=manifest["parameters"]["drafter"] / 1e6,
        restorer=_RESTORER.format(restorer=restorer / 1e6) if restorer else "",
        guesses=manifest["block_size"] - 1,
        commands=(_ANSWERS_COMMANDS if are_answers else _CONTINUATIONS_COMMANDS).format(**values),
        steps=training["steps"],
        tokens=training["tokens"] / 1e6,
        minutes=training["wall_seconds"] / 60,
        place=f"{threads} thread" if device == "cpu" else device,
        data=(_ANSWERS if are_answers else _CONTINUATIONS).format(**values),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
