"""A node's HTTP under schemathesis: requests by docs/openapi.json, right ones and wrong ones.

    python -m scripts.attack.http_schema --examples 200 --out benchmarks/http_schema.json

Each operation is asked with values at their bounds, with `--examples` of random ones and with as
many that break the description; told is every answer that is no answer of the description: a fault
of the node, a status, a content type or a body that it does not name. The seed gives the requests.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.attack.subject import MODEL, attacked
from scripts.bench.machine import command, machine, write_report
from scripts.write.openapi import description

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
"""Not those that find faults where there are none (schemathesis #2983, #4592, #4503): any status of
the description may refuse a request, and headers are not described."""
REQUEST_SECONDS = 20
TOLD = (
    "schemathesis_version",
    "operations",
    "phases",
    "test_cases",
    "failures",
    "errors",
    "valid_rates",
    "running_time",
    "stop_reason",
)
"""Of its report."""
MOST_TOKENS, MOST_CHOICES = 8, 2
"""Of the requests that are right, so that a run takes as long as its requests are many."""

LENGTHS = {
    "/v1/completions": ("max_tokens",),
    "/v1/chat/completions": ("max_tokens", "max_completion_tokens"),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
    "/api/chat": ("num_predict",),
    "/api/generate": ("num_predict",),
}
"""What bounds an answer, by its path; the first is always given."""


class NotRun(Exception):
    """schemathesis itself failed; the message has its last words."""


def examine(address: str, *, examples: int, seed: int, seconds: int) -> dict[str, Any]:
    """What became of requests to the HTTP at host:port, in `seconds` at most. Raises `NotRun`."""
    with tempfile.TemporaryDirectory() as folder:
        asked, found = Path(folder) / "openapi.json", Path(folder) / "found.json"
        asked.write_text(json.dumps(of_short_answers(description())))
        words = ["run", str(asked), "--url", f"http://{address}", "--checks", ",".join(CHECKS)]
        words += ["--max-examples", str(examples), "--seed", str(seed), "--mode", "all"]
        words += ["--phases", "coverage,fuzzing", "--max-time", str(seconds), "--no-color"]
        words += ["--request-timeout", str(REQUEST_SECONDS), "--generation-database", "none"]
        words += ["--continue-on-failure", "--report", "json", "--report-json-path", str(found)]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("schemathesis")), *words],
            capture_output=True,
            text=True,
            cwd=folder,
            check=False,
        )
        if not found.exists():
            raise NotRun((done.stdout + done.stderr)[-2000:])
        whole = json.loads(found.read_text())
        return {"exit": done.returncode, **{name: whole[name] for name in TOLD}}


def of_short_answers(whole: dict[str, Any]) -> dict[str, Any]:
    """The description of requests to the model that is served here, for a few tokens."""
    for path, (longest, *others) in LENGTHS.items():
        asking = whole["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        schema = asking["schema"]
        schema["properties"]["model"] = {"enum": [MODEL]}
        if "n" in schema["properties"]:
            schema["properties"]["n"] = {**schema["properties"]["n"], "maximum": MOST_CHOICES}
        if "options" in schema["properties"]:
            schema["required"] = [*schema["required"], "options"]
            options = dict(schema["properties"]["options"])
            options["properties"] = dict(options["properties"])
            schema["properties"]["options"] = options
            schema = options
        for name in (longest, *others):
            bounds = schema["properties"][name]
            schema["properties"][name] = {**bounds, "minimum": 1, "maximum": MOST_TOKENS}
        schema["required"] = sorted({*schema.get("required", []), longest})
    return whole


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=200, help="of each operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=540, help="at most")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/http_schema.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Starts an agent, examines its HTTP, writes the report."""
    asked = parse(words)
    with attacked("http-schema") as subject:
        found = examine(
            subject.http_address, examples=asked.examples, seed=asked.seed, seconds=asked.seconds
        )
        running, log = subject.agent.running, subject.log_faults()
    report = {
        "command": command(__file__),
        "machine": machine(),
        "seed": asked.seed,
        "running": running,
        "log": log,
        "found": found,
    }
    write_report(asked.out, report)
    print(json.dumps(report, indent=2)[:4000])


if __name__ == "__main__":
    main()
