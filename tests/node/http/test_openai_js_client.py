"""OpenAI's client for JavaScript, under Node, against a real fleet."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.node.http.conftest import HttpFleet, OpenAiOf, http_of

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("openai_js_client.mjs")
PATIENCE_SECONDS = 100


@pytest.fixture(scope="module")
def told(fleet: HttpFleet) -> dict[str, Any]:
    """What the client got of the node that does not serve the model."""
    node = shutil.which("node")
    if node is None or not (ROOT / "node_modules" / "openai").is_dir():
        pytest.skip("Node.js or npm's packages are not installed: make dashboard")
    words = [node, str(SCRIPT), f"http://{http_of(fleet.gate)}/v1"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_gets_what_the_client_for_python_gets(
    told: dict[str, Any], fleet: HttpFleet, openai_of: OpenAiOf
) -> None:
    client = openai_of(fleet.one)
    expected = client.chat.completions.create(
        model="toy",
        messages=[{"role": "user", "content": "Say something of lakes"}],
        max_tokens=8,
        temperature=0,
    )
    text = expected.choices[0].message.content
    assert (told["whole"], told["streamed"], told["response"]) == (text, text, text)
    vectors = client.embeddings.create(model="toy", input=["a lake", "x"])
    assert told["vectors"] == [each.embedding for each in vectors.data]
    assert set(told["models"]) == {"tiny", "toy"}


def test_its_runner_of_tools_gets_a_call_that_is_held(told: dict[str, Any]) -> None:
    assert told["called"] in ("1", "2")


def test_errors_are_those_that_it_knows(told: dict[str, Any]) -> None:
    refusal = {"name": "NotFoundError", "status": 404, "code": "MODEL_NOT_FOUND"}
    assert told["refusal"] == refusal
