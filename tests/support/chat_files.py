"""A tokenizer and a chat template for scripted nodes: what they answer becomes known words.

Prompts are words between spaces, of `PROMPT_WORDS`. The scripted model's ids are those of
positions, so `chat_files` gives the id at each position the piece that is wanted there; in
pieces "▁" stands for a space, and "<0xE2>" for a byte of a character.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.scripted_answers import next_token

PROMPT_WORDS = ("user", "assistant", "system", "hello", "bye", "be", "kind", "why")
START, END = "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def chat_files(
    said: Mapping[int, str],
    *,
    template: str | None = TEMPLATE,
    end_is_special: bool = True,
) -> dict[str, bytes]:
    """Files of a tokenizer; `said` is position to piece, END among them where answers end.

    Prompts' words have the odd ids from 1 on that no position of `said` has.
    """
    vocabulary = {"<unk>": 0}
    # Word level: a piece has one id, so that each is said at one position.
    spoken = {next_token(position): piece for position, piece in said.items()}
    free = (each for each in range(1, 1000, 2) if each not in spoken)
    for word in (START, *PROMPT_WORDS):
        vocabulary[word] = next(free)
    vocabulary |= {piece: token_id for token_id, piece in spoken.items()}
    end_id = vocabulary.setdefault(END, 999)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary[content],
                "content": content,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": content == START or end_is_special,
            }
            for content in (START, END)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    files = {
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "generation_config.json": json.dumps({"eos_token_id": [end_id]}).encode(),
    }
    if template is not None:
        files["chat_template.jinja"] = template.encode()
    return files
