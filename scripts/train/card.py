"""The model card, written from the manifest and the evaluation beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EVALUATION_NAME = "evaluation.json"

_HEAD = """\
---
license: other
license_name: psf-2.0
license_link: https://docs.python.org/3/license.html
language: code
library_name: transformers
pipeline_tag: text-generation
tags: [python, recall, speculative-decoding]
---

# tiny: a verifier small enough to ship

A Qwen3-architecture language model of {parameters:.1f} M parameters in bfloat16. It writes
Python-looking text and finds the fact that lies somewhere in its context. It exists so that the
fleet can be run, tested and measured on any machine without a download; it is no coding assistant.
Its chat template joins messages as comments, so that tools for chats can be tried: it was never
trained on conversations, and goes on with text that looks like Python. Its 2,048 positions are
absolute: a session ends there, whatever window it keeps.

## Data

{training_files} files, {megabytes:.1f} MB, of {source}, and synthetic recall tasks made of them.
Third-party packages, tests and their fixtures, codecs and help topics are left out.
{held_out_count} files, chosen by a hash of their path, are held out for evaluation; `training.json`
names them. The source text is under the PSF License Agreement (PSF-2.0), copyright the Python
Software Foundation.

## Training

```sh
python -m scripts.train.verifier --preset {preset} --seed {seed} \\
  --workers {workers} --threads {threads} --work WORK
```

{steps:,} steps, {tokens:.1f} M tokens, {minutes:.0f} minutes on {cores} cores ({processor}) shared
with other work. `training.json` lists the stages that ran; later ones were chosen while earlier
ones ran, at the {resumes} resumptions that it records. The tokenizer is a byte-level BPE of 4,096
entries with single digits, trained on the same files.

## Recall

A fact is a comment line, asked for by another; the answer is one token out of 256 words:

```python
# fact: river = copper
...
# recall: river =
```
"""

_EVALUATION = """
## Figures

Held-out files: {full:.3f} bits per byte with full attention, {sink:.3f} with
{sink_tokens} sink and {window_tokens} window tokens.

Recall over held-out code, facts at uniform random depths, one of them asked for at the end; greedy
decoding, exact match, out of {cases} cases a row. Sink + window can still see a fact that lies in
its last tokens; the last column counts only facts that it has evicted. One fact is found by its
form, not by its key: asked for a key that is nowhere, the model answers with the fact that is there
(`scripts/eval/needle_controls.py`). With 4 facts, a model that
finds facts but does not tell their keys apart answers 25 of 100; these weights answer
{several_hits} at {several_context:,} tokens.

| context | facts | full attention | 95 % interval | sink + window | of those evicted |
|---:|---:|---:|---:|---:|---:|
{rows}

Full attention by depth (0 is the beginning of the context), hits / cases:

| context | facts | 0-0.2 | 0.2-0.4 | 0.4-0.6 | 0.6-0.8 | 0.8-1 |
|---:|---:|---:|---:|---:|---:|---:|
{depth_rows}

Written by `{command}` on {processor}.
"""


def write_card(folder: Path) -> None:
    """Write `README.md` into `folder`, with figures where the evaluation is of these weights."""
    manifest = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    card = _head(manifest)
    path = folder / EVALUATION_NAME
    if path.exists():
        evaluation = json.loads(path.read_text(encoding="utf-8"))
        if evaluation["weights_sha256"] == manifest["model"]["weights_sha256"]:
            card += _figures(evaluation)
    (folder / "README.md").write_text(card, encoding="utf-8")


def _head(manifest: dict[str, Any]) -> str:
    corpus, run, machine = manifest["corpus"], manifest["run"], manifest["machine"]
    return _HEAD.format(
        parameters=manifest["model"]["parameter_count"] / 1e6,
        training_files=corpus["training_files"],
        megabytes=corpus["training_bytes"] / 1e6,
        source=corpus["source"],
        held_out_count=len(corpus["held_out_files"]),
        preset=run["preset"],
        seed=run["seed"],
        workers=run["workers"],
        threads=run["threads"],
        resumes=len(run["resumes"]),
        steps=run["step"],
        tokens=run["tokens"] / 1e6,
        minutes=run["wall_seconds"] / 60,
        cores=machine["cores"],
        processor=machine["processor"],
    )


def _figures(evaluation: dict[str, Any]) -> str:
    rows, depth_rows = [], []
    for rung in evaluation["recall"]:
        full, sink = rung["full"], rung["sink_window"]
        low, high = full["wilson_95"]
        evicted = sink["fact_evicted"]
        label = f"| {rung['context_tokens']:,} | {rung['facts']} |"
        rows.append(
            f"{label} {full['hits']} | {100 * low:.0f}-{100 * high:.0f} % | {sink['hits']} |"
            f" {evicted['hits']} / {evicted['cases']} |"
        )
        bands = (f" {band['hits']} / {band['cases']} |" for band in full["by_depth"])
        depth_rows.append(label + "".join(bands))
    several = [rung for rung in evaluation["recall"] if rung["facts"] == 4][-1]
    return _EVALUATION.format(
        several_hits=several["full"]["hits"],
        several_context=several["context_tokens"],
        full=evaluation["held_out"]["full"]["bits_per_byte"],
        sink=evaluation["held_out"]["sink_window"]["bits_per_byte"],
        sink_tokens=evaluation["sink_tokens"],
        window_tokens=evaluation["window_tokens"],
        cases=evaluation["recall"][0]["full"]["cases"],
        rows="\n".join(rows),
        depth_rows="\n".join(depth_rows),
        command=evaluation["command"],
        processor=evaluation["machine"]["processor"],
    )
