"""Loading holds the weights and one tensor more, and takes what `fleet fit` says: measured."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers

from kakeya_fleet.engine.backends.on_paper import read_on_paper
from kakeya_fleet.engine.backends.torch_backend.compiled.library import SWITCH, library
from scripts.train.tiny_families import save_random_checkpoint
from tests.warm.starting import WarmStarts

pytestmark = pytest.mark.timeout(300)

PEAKS = "tests.support.loading_peaks"
MARGIN = 1.15
"""Of the weights at the peak: one of the tensors is copied and mapped, and the heap has holes."""
BELOW, ABOVE = 0.96, 1.10
"""What is said on paper, of what is measured; the heap's holes differ from run to run."""
SIZES: dict[str, object] = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "num_hidden_layers": 9,
    "vocab_size": 2048,
}


@dataclass(frozen=True)
class Case:
    """What is loaded, and how."""

    architecture: str
    weights: str = "auto"
    switch: str = "on"


CASES = (
    Case("LlamaForCausalLM"),
    Case("LlamaForCausalLM", weights="int8"),
    Case("LlamaForCausalLM", switch="off"),
    Case("Gemma3ForCausalLM"),
)


def checkpoint(folder: Path, architecture: str) -> Path:
    """Some 100 MB of random numbers in bfloat16."""
    options = {"layer_types": ["full_attention"] * 9} if architecture.startswith("Gemma") else {}
    config = getattr(transformers, architecture).config_class(**SIZES | options)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu")
    model.tie_weights()
    # The same ones over and over: nobody computes with them, and drawing all takes seconds.
    drawn = 0.02 * torch.randn(1 << 16, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        for parameter in model.parameters():
            count = parameter.numel()
            parameter.copy_(drawn.repeat(-(-count // len(drawn)))[:count].view_as(parameter))
    model.save_pretrained(folder)
    save_random_checkpoint(
        folder / "small", architecture, hidden_size=64, head_dim=32, intermediate_size=64
    )
    (folder / "tokenizer.json").write_bytes((folder / "small" / "tokenizer.json").read_bytes())
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    architectures = {case.architecture for case in CASES}
    return {each: checkpoint(tmp_path_factory.mktemp(each), each) for each in architectures}


@pytest.fixture(scope="module")
def peaks(
    folders: dict[str, Path], warm_starts: WarmStarts, tmp_path_factory: pytest.TempPathFactory
) -> dict[Case, int]:
    if sys.platform != "linux":
        pytest.skip("only Linux resets the mark of the most memory")
    if library() is None:
        pytest.skip("there is no C++ compiler here")
    asked = []
    for case in CASES:
        folder = folders[case.architecture]
        asked.append([str(folder), str(folder / "small"), case.weights, case.switch])
    own = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = tmp_path_factory.mktemp("peaks") / "errors"
    with told.open("wb") as errors:
        loads = warm_starts.piped([json.dumps(asked)], own, errors, module=PEAKS)
    assert loads.stdout is not None
    with loads.stdout:
        measured = loads.stdout.read()
    assert loads.wait() == 0, told.read_text()
    return dict(zip(CASES, json.loads(measured), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_the_peak_is_that_of_the_weights_and_as_it_was_said(
    case: Case,
    peaks: dict[Case, int],
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, case.switch)
    paper = read_on_paper(str(folders[case.architecture]), backend="torch")
    kept, said = paper.weight_bytes[case.weights], paper.loading_bytes[case.weights]
    assert kept > 60_000_000
    assert kept < peaks[case] <= MARGIN * kept
    assert BELOW * peaks[case] <= said <= ABOVE * peaks[case]
