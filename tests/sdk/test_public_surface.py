from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kakeya
from tests.support.chat_files import chat_files
from tests.support.scripted_node import ScriptedNode

SDK = Path(__file__).parents[2] / "sdks" / "python"
README = (SDK / "README.md").read_text()


def test_all_is_sorted_and_complete() -> None:
    assert kakeya.__all__ == sorted(kakeya.__all__)
    public = {
        name
        for name in dir(kakeya)
        if not name.startswith("_") and not isinstance(getattr(kakeya, name), type(sys))
    }
    assert public == set(kakeya.__all__)
    assert set(kakeya._HOMES) <= public


def test_what_is_not_public_is_said_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'kakeya' has no attribute 'Cleint'"):
        kakeya.Cleint  # type: ignore[attr-defined]  # noqa: B018 - looked up


def test_the_errors_are_there_without_the_client() -> None:
    code = "import sys, kakeya; kakeya.KakeyaError; print('grpc' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert loaded.stdout.split() == [b"False"]


def test_everything_public_is_documented() -> None:
    for name in kakeya.__all__:
        value = getattr(kakeya, name)
        if isinstance(value, type):
            assert value.__doc__, name


def test_importing_the_client_imports_nothing_of_the_node_and_no_model_library() -> None:
    code = (
        "import sys, kakeya; kakeya.Client\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, sep='\\n')"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert "grpc" in loaded
    heavy = {"node", "fleet", "engine", "torch", "transformers", "tokenizers", "numpy"}
    assert not heavy & set(loaded)


def test_the_package_is_typed() -> None:
    assert (SDK / "kakeya" / "py.typed").exists()


@pytest.mark.parametrize("example", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_examples_of_the_readme_run(
    threaded_node: ScriptedNode,
    example: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    threaded_node.tokenizer_files = chat_files({15: "Light"})
    assert "127.0.0.1:7600" in example
    exec(compile(example.replace("127.0.0.1:7600", threaded_node.address), "README", "exec"), {})
    assert capsys.readouterr().out
    assert not threaded_node.sessions
