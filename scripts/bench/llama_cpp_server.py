"""llama.cpp on one GGUF file, asked and answering in lines, in a process of its own.

    python -P scripts/bench/llama_cpp_server.py FILE THREADS [DRAFT TOKENS]

The model of the file DRAFT drafts for that of FILE, TOKENS at most.

Of xllamacpp alone, so that it may have an environment of its own. Each line of standard input
is {"prompt": ids, "count": tokens}; the answer has llama.cpp's own times and the ids. With "top"
it has the natural logarithms of that many first tokens' probabilities, by id; with "keep" the
server keeps the prompt's keys and values for the next question that begins like this one.
"""

import json
import sys
import urllib.request

import xllamacpp  # type: ignore[import-not-found]  # see above

CONTEXT = 4096
DRAFT = 3


def main() -> None:
    """Answers until standard input ends."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[2])
    if len(sys.argv) > DRAFT:
        speculative = parameters.speculative
        speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        speculative.draft.mparams.path = sys.argv[DRAFT]
        speculative.draft.n_max = int(sys.argv[DRAFT + 1])
        threads = parameters.cpuparams.n_threads
        speculative.draft.cpuparams.n_threads = threads
        speculative.draft.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        body = {
            "prompt": asked["prompt"],
            "n_predict": asked["count"],
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": asked.get("keep", False),
            "n_probs": asked.get("top", 0),
            "return_tokens": True,
        }
        request = urllib.request.Request(
            f"{server.listening_address}/completion",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            found = json.load(response)
        told = {"timings": found["timings"], "tokens": found["tokens"]}
        if asked.get("top"):
            (first, *_) = found["completion_probabilities"]
            told["log_probabilities"] = [
                [each["id"], each["logprob"]] for each in first["top_logprobs"]
            ]
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
