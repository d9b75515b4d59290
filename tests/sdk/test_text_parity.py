"""Text is the same as by transformers: ids, their text, and rendered chats."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

import kakeya
from kakeya.text import TextCodec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

transformers = pytest.importorskip("transformers")

TINY = Path(__file__).parents[2] / "engine" / "shipped" / "tiny"
TEXTS = [
    "",
    "def parse(line): return line.split()",
    "  naïve café ☕ 👩‍👩‍👧 日本語\n\nПривет\t\x00!",
    "<|start|>user<|end|> hello <s> world </s><img> don't ,  .",
    "a" * 300,
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The <weather> & more",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich"}}}
    ],
}
CHATS: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "hello"}],
    [
        {"role": "system", "content": "Be <brief> & kind."},
        {"role": "user", "content": " hello\n"},
        {"role": "assistant", "content": "hi", "reasoning": "They greet."},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
    ],
    [{"role": "user", "content": "weather?"}, CALL, {"role": "tool", "content": "sunny"}],
]
TEMPLATES = {
    "roles": "{{ bos_token }}{% for message in messages %}{{ '<' + message['role'] + '>' }}"
    "{{ message.content if message.content is string else (message.content or []) | tojson }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
    "trimmed": """
    {%- for message in messages %}
        {% if loop.first %}
    first
        {% elif message.role == 'tool' %}
            {% continue %}
        {% endif %}
        {%- if loop.index > 3 %}{% break %}{% endif %}
    {{ loop.index0 }} {{ message.role | upper }}
    {% endfor %}
""",
    "tools": "{% if tools %}{{ tools | tojson }}|{{ tools | tojson(indent=2) }}{% endif %}"
    "{% for message in messages %}{% if message.tool_calls is defined %}"
    "{% for call in message.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}"
    "{% else %}{{ message.content }}{% endif %}{% endfor %}",
    "generation": "{% set x = 1 %}{% for message in messages %}{% generation %}{% set x = 2 %}"
    "{{ message.content }}{{ x }}{% endgeneration %}\n{% endfor %}{{ x }}",
    "namespace": "{% set ns = namespace(found=false, self=3) %}{% for message in messages %}"
    "{% if message.role == 'tool' %}{% set ns.found = true %}{% endif %}{% endfor %}"
    "{{ ns.found }}{{ ns.self }}{{ dict(a=1) }}{{ documents is defined }}{{ thinking }}",
    "reasoning": "{% for message in messages %}{{ message.reasoning_content }}"
    "{{ message.thinking }}{{ message.content is none }}{% endfor %}{{ enable_thinking }}",
    "macros": "{% macro turn(m) %}[{{ m.role }}]{% endmacro %}{% for m in messages %}"
    "{{ turn(m) }}{{ m.content | string | trim | length }}{% endfor %}{{ messages[-1].role }}"
    "{{ messages[::-1] | map(attribute='role') | join(',') }}{{ 'x'.upper() }}",
    "dates": "{{ strftime_now('%Y-%m-%d') }}{{ raise_exception is defined }}",
}


def words() -> Tokenizer:
    vocabulary = {"<unk>": 0, "hello": 1, "world": 2, "<|end|>": 3, "def": 4, ",": 5, ".": 6}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def bytes_of_text() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: index for index, piece in enumerate([*alphabet, "he", "ll", "Ġw"])}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("h", "e"), ("l", "l"), ("Ġ", "w")]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|start|>", special=True)])
    tokenizer.add_tokens([AddedToken("<img>", rstrip=True)])
    start = tokenizer.token_to_id("<|start|>")
    tokenizer.post_processor = TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", start)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=20)
    return tokenizer


def pieces() -> Tokenizer:
    scored = [("<unk>", 0.0), ("▁", -2.0), ("▁hello", -1.0), ("▁def", -1.5)]
    scored += [(chr(code), -3.0) for code in range(97, 123)]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def added(content: str, **flags: bool) -> dict[str, object]:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": content, **plain, "special": True, **flags}


CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "plain": ({}, None),
    "named": ({"bos_token": "<s>", "eos_token": "<|end|>", "pad_token": "<|end|>"}, None),
    "old": (
        {"eos_token": "<|end|>"},
        {
            "bos_token": "<s>",
            "eos_token": added("</s>", lstrip=True),
            "additional_special_tokens": ["<img>"],
        },
    ),
    "decoder": (
        {
            "bos_token": "<s>",
            "eos_token": "</s>",
            "add_bos_token": True,
            "image_token": "<|start|>",
            "extra_special_tokens": ["<|end|>"],
            "added_tokens_decoder": {
                "1000": added("</s>", rstrip=True),
                "999": added("don't", special=False, normalized=True),
            },
        },
        {"bos_token": "<ignored>"},
    ),
}


def saved(
    folder: Path, tokenizer: Tokenizer, config: dict[str, Any], special: dict[str, Any] | None
) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if special is not None:
        (folder / "special_tokens_map.json").write_text(json.dumps(special))
    return folder


def both(folder: Path) -> tuple[TextCodec, PreTrainedTokenizerFast]:
    ours = TextCodec.from_folder(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    return ours, theirs


def check_same_ids(folder: Path) -> None:
    ours, theirs = both(folder)
    assert ours.eos_token_id == theirs.eos_token_id
    for text in TEXTS:
        for special in (False, True):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special) == ids
            for skip in (False, True):
                expected = theirs.decode(
                    ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
                )
                assert ours.decode(ids, skip_special_tokens=skip) == expected


@pytest.mark.parametrize("config", sorted(CONFIGS))
@pytest.mark.parametrize("make", [words, bytes_of_text, pieces])
def test_ids_and_their_text_are_the_same(
    make: Callable[[], Tokenizer], config: str, tmp_path: Path
) -> None:
    check_same_ids(saved(tmp_path, make(), *CONFIGS[config]))


def test_ids_of_the_shipped_model_are_the_same() -> None:
    check_same_ids(TINY)


@pytest.fixture(scope="module")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chat")
    return saved(folder, bytes_of_text(), {"bos_token": "<s>", "eos_token": "<|end|>"}, None)


@pytest.fixture(scope="module")
def their_tokenizer(chat_folder: Path) -> PreTrainedTokenizerFast:
    return both(chat_folder)[1]


def with_template(folder: Path, tmp_path: Path, template: object, *, file: bool = False) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    if file:
        (tmp_path / "chat_template.jinja").write_text(str(template))
        template = "overruled by the file"
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({**config, "chat_template": template})
    )
    return tmp_path


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_chats_are_rendered_the_same(
    name: str,
    chat_folder: Path,
    their_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    ours = TextCodec.from_folder(with_template(chat_folder, tmp_path, TEMPLATES[name]))
    for chat in CHATS:
        for tools in (None, TOOLS):
            for prompt in (False, True):
                expected = their_tokenizer.apply_chat_template(
                    chat,
                    tools=tools,
                    add_generation_prompt=prompt,
                    chat_template=TEMPLATES[name],
                    tokenize=False,
                    enable_thinking=False,
                )
                rendered = ours.render_chat(
                    chat, tools=tools, add_generation_prompt=prompt, enable_thinking=False
                )
                assert rendered == expected
    if name == "dates":
        assert str(datetime.now().astimezone().year) in rendered


def test_named_templates_are_chosen_the_same(chat_folder: Path, tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "plain {{ messages | length }}"},
        {"name": "tool_use", "template": "tools {{ tools | length }}"},
    ]
    folder = with_template(chat_folder, tmp_path, named)
    ours, theirs = both(folder)
    for tools in (None, TOOLS):
        expected = theirs.apply_chat_template(CHATS[0], tools=tools, tokenize=False)
        assert ours.render_chat(CHATS[0], tools=tools) == expected
    with_template(chat_folder, tmp_path, named[1:])
    with pytest.raises(kakeya.ChatTemplateNotFound, match="tool_use"):
        TextCodec.from_folder(folder).render_chat(CHATS[0])


def test_a_template_of_its_own_file_comes_first(chat_folder: Path, tmp_path: Path) -> None:
    ours, theirs = both(with_template(chat_folder, tmp_path, "a file\n", file=True))
    assert ours.has_chat_template
    expected = theirs.apply_chat_template(CHATS[0], tokenize=False)
    assert ours.render_chat(CHATS[0]) == expected == "a file"


def test_the_shipped_models_template_renders_the_same() -> None:
    ours, theirs = both(TINY)
    assert ours.has_chat_template
    expected = theirs.apply_chat_template(CHATS[0], tokenize=False, add_generation_prompt=True)
    assert ours.render_chat(CHATS[0]) == expected


@pytest.mark.parametrize(
    ("template", "detail"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for message in messages %}", "Unexpected end of template"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update(a=1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ (''|attr('__class__')).__mro__ }}", "unsafe"),
        ("{{ range.__globals__ }}x{{ range.__globals__.os }}", "unsafe"),
        ("{% set ns = namespace() %}{% set ns.__class__ = 1 %}", "__class__"),
        ("{{ namespace(_a=1) }}", "_a"),
        ("{% for i in range(100000000) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ messages[7].content.x }}", "has no"),
        ("{{ 1 / 0 }}", "division"),
        ("{{ 'a' + 1 }}", "str"),
        ("{% include 'other' %}", "no loader"),
        ("{{ messages | tojson(separators=3) }}", "unpack"),
    ],
)
def test_a_template_that_fails_or_must_not_says_why(
    template: str, detail: str, chat_folder: Path, tmp_path: Path
) -> None:
    codec = TextCodec.from_folder(with_template(chat_folder, tmp_path, template))
    with pytest.raises(kakeya.ChatTemplateError) as caught:
        codec.render_chat(CHATS[0])
    assert "chat template" in str(caught.value)
    assert caught.value.metadata["error"]
    assert detail in caught.value.metadata["detail"]


def test_pythons_own_attributes_are_not_there(chat_folder: Path, tmp_path: Path) -> None:
    template = "[{{ ''['__class__'] }}{{ '{0.__class__}'.format(messages) }}{{ ''.__doc__ }}]"
    codec = TextCodec.from_folder(with_template(chat_folder, tmp_path, template))
    assert codec.render_chat(CHATS[0]) == "[]"


def test_what_is_no_json_and_empty_chats_are_refused(chat_folder: Path, tmp_path: Path) -> None:
    codec = TextCodec.from_folder(with_template(chat_folder, tmp_path, TEMPLATES["roles"]))
    with pytest.raises(kakeya.ChatTemplateError, match="at least one"):
        codec.render_chat([])
    with pytest.raises(kakeya.ChatTemplateError, match="PosixPath"):
        codec.render_chat([{"role": "user", "content": tmp_path}])


def test_the_callers_chat_is_not_changed(chat_folder: Path, tmp_path: Path) -> None:
    codec = TextCodec.from_folder(with_template(chat_folder, tmp_path, TEMPLATES["reasoning"]))
    before = json.dumps(CHATS)
    for chat in CHATS:
        codec.render_chat(chat)
    assert json.dumps(CHATS) == before
