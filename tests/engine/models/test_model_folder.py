"""From names to folders, and what each failure says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from kakeya_fleet import engine
from kakeya_fleet.engine.errors import ModelNotFound, WeightsMismatch
from kakeya_fleet.engine.models.digests import weight_files
from kakeya_fleet.engine.models.model_folder import (
    SHIPPED,
    resolve,
    resolve_tokenizer,
    tokenizer_digest,
    vocabulary_size,
    weights_digest,
)

FILES = {
    "config.json": b'{"vocab_size": 96}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 64,
    "README.md": b"not needed",
}
REPOSITORY = "some-org/some-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"

RESOLVE = """
import json, sys
from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.engine.models.model_folder import resolve, resolve_tokenizer
calls = {"model": resolve, "tokenizer": resolve_tokenizer}
for what, spec in json.loads(sys.argv[1]):
    heard = []
    try:
        folder = calls[what](spec, progress=lambda done, total: heard.append((done, total)))
    except ModelNotFound as error:
        print(json.dumps({"error": str(error)}))
    else:
        files = sorted(path.name for path in folder.path.iterdir())
        print(json.dumps({"model_id": folder.model_id, "files": files, "heard": heard}))
"""


def resolve_in_child(*asked: tuple[str, str], **environment: str) -> list[dict[str, Any]]:
    """What is found of each (what, spec), in order.

    In a process of its own: the hub's client reads its settings on import.
    """
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, json.dumps(asked)],
        env={**os.environ, "HF_HUB_DISABLE_XET": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "%" not in done.stderr  # no progress bar but the caller's
    return [json.loads(line) for line in done.stdout.splitlines()]


def cached(home: Path) -> None:
    """Puts `REPOSITORY` into the hub cache below `home`."""
    root = home / "hub" / f"models--{REPOSITORY.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name, content in FILES.items():
        (snapshot / name).write_bytes(content)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(COMMIT)


class FakeHub(BaseHTTPRequestHandler):
    """Answers as the hub does for one repository; all others are missing or gated."""

    def do_GET(self) -> None:
        self.answer(body=True)

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def answer(self, body: bool) -> None:
        path = self.path.split("?")[0]
        name = path.rsplit("/", 1)[-1]
        if "gated-org" in path:
            self.reply(403, b"", body, {"X-Error-Code": "GatedRepo"})
        elif REPOSITORY not in path:
            self.reply(404, b"", body, {"X-Error-Code": "RepoNotFound"})
        elif "/resolve/" in path and name in FILES:
            tags = {"ETag": f'"{name}-1"', "X-Repo-Commit": COMMIT}
            self.reply(200, FILES[name], body, tags)
        elif path.startswith("/api/models/") and "/tree/" in path:
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": f"{name}-1"}
                for name, content in FILES.items()
            ]
            self.reply(200, json.dumps(entries).encode(), body, {})
        else:
            siblings = [{"rfilename": name} for name in FILES]
            facts = {"id": REPOSITORY, "modelId": REPOSITORY, "sha": COMMIT, "siblings": siblings}
            self.reply(200, json.dumps(facts).encode(), body, {})

    def reply(self, status: int, content: bytes, body: bool, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_local_folder_is_named_by_its_last_part(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_bytes(FILES["config.json"])
    folder = resolve(f"{tmp_path}/mine/")
    assert (folder.path, folder.model_id) == (tmp_path / "mine", "mine")
    assert resolve_tokenizer(str(tmp_path / "mine")) == folder


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("spec", ["", "nothing", "./no/such", "/no/such", "a/b/c", "../x", "a b/c"])
def test_names_of_nothing(spec: str) -> None:
    with pytest.raises(ModelNotFound, match="not a folder here"):
        resolve(spec)


def test_the_shipped_model_is_packaged_with_the_engine() -> None:
    assert SHIPPED["tiny"].is_relative_to(Path(engine.__path__[0]))


def test_offline_what_is_cached_is_found_and_else_the_setting_is_named(tmp_path: Path) -> None:
    cached(tmp_path)
    found, missing = resolve_in_child(
        ("model", REPOSITORY),
        ("model", "some-org/other"),
        HF_HOME=str(tmp_path),
        HF_HUB_OFFLINE="1",
    )
    assert found["model_id"] == REPOSITORY
    assert "model.safetensors" in found["files"]
    assert "HF_HUB_OFFLINE is set" in missing["error"]
    assert str(tmp_path) in missing["error"]


def test_no_network(tmp_path: Path) -> None:
    (answer,) = resolve_in_child(
        ("model", REPOSITORY), HF_HOME=str(tmp_path), HF_ENDPOINT="http://127.0.0.1:9"
    )
    assert "cannot be reached" in answer["error"]


def test_what_the_hub_has_is_downloaded_and_what_it_refuses_is_explained(
    tmp_path: Path, hub: str
) -> None:
    tokenizer, model, unknown, gated = resolve_in_child(
        ("tokenizer", f"{REPOSITORY}-of-words"),
        ("model", REPOSITORY),
        ("model", "nobody/nothing"),
        ("model", "gated-org/model"),
        HF_HOME=str(tmp_path),
        HF_ENDPOINT=hub,
    )
    # The tokenizer alone brings no weights.
    assert tokenizer["files"] == ["config.json", "tokenizer.json"]
    assert model["files"] == ["config.json", "model.safetensors", "tokenizer.json"]
    # A download is heard to its last byte.
    wanted = sum(len(FILES[name]) for name in model["files"])
    heard = model["heard"]
    assert heard[-1] == [wanted, wanted]
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert "no such repository" in unknown["error"]
    assert "accept its terms" in gated["error"]
    assert "HF_TOKEN" in gated["error"]


def test_digests_cover_names_order_and_bytes(tmp_path: Path) -> None:
    def digest(files: dict[str, bytes]) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if len(files) > 1:
            index = {"weight_map": {str(place): name for place, name in enumerate(files)}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (folder / "other.safetensors").write_bytes(b"not of the model")
        return weights_digest(folder)

    single = digest({"model.safetensors": b"ab"})
    assert single == digest({"model.safetensors": b"ab"})
    digests = {
        single,
        digest({"model.safetensors": b"ac"}),
        digest({"model-1.safetensors": b"a", "model-2.safetensors": b"b"}),
        digest({"model-1.safetensors": b"b", "model-2.safetensors": b"a"}),
        digest({"model-1.safetensors": b"ab", "model-2.safetensors": b""}),
        digest({"model-1.safetensors": b"a", "model-3.safetensors": b"b"}),
    }
    assert len(digests) == 6
    assert all(len(value) == 64 for value in digests)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", "not a weights index"),
        ("[]", "not a weights index"),
        ('{"weight_map": {"a": "model-1.safetensors"}}', r"model-1\.safetensors"),
        ('{"weight_map": {"a": "../up.safetensors"}}', "own folder"),
        ('{"weight_map": {}}', "own folder"),
    ],
)
def test_a_broken_weights_index(tmp_path: Path, index: str, message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(WeightsMismatch, match=message):
        weight_files(tmp_path)


def test_no_weights_at_all(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"old")
    with pytest.raises(WeightsMismatch, match="fetch the model's safetensors"):
        weights_digest(tmp_path)


def test_tokenizer_digest_and_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"tokenizer\.json"):
        tokenizer_digest(tmp_path)
    with pytest.raises(ModelNotFound, match="vocab_size"):
        vocabulary_size(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert vocabulary_size(tmp_path) == 96
    first = tokenizer_digest(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(b"{ }")
    assert tokenizer_digest(tmp_path) != first
