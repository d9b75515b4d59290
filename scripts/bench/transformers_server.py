"""transformers on one folder, asked and answering in lines, in a process of its own.

    python -m scripts.bench.transformers_server FOLDER DTYPE dynamic|static THREADS

So that threads wait as this library's users have them wait, whatever its rival does. Each line of
standard input is {"prompt": ids, "count": tokens}; the answer has the seconds of `generate`.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, StaticCache


def generated(model: PreTrainedModel, prompt: list[int], count: int, *, is_static: bool) -> float:
    """Seconds of so many tokens behind a prompt, greedily."""
    options: dict[str, object] = {}
    if is_static:
        size = len(prompt) + count
        options["past_key_values"] = StaticCache(config=model.config, max_cache_len=size)
    ids = torch.tensor([prompt])
    began = time.perf_counter()
    with torch.inference_mode():
        model.generate(ids, do_sample=False, min_new_tokens=count, max_new_tokens=count, **options)
    return time.perf_counter() - began


def main() -> None:
    """Answers until standard input ends."""
    folder, dtype, cache, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        seconds = generated(model, asked["prompt"], asked["count"], is_static=cache == "static")
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
