"""Writes tests/text-vectors.json: what the Python client's TextCodec makes of awkward text.

The TypeScript client's must make the same of it. `--check` writes nothing and exits
with 1 when the file in the tree differs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kakeya.text import TextCodec

PACKAGE = Path(__file__).resolve().parent.parent
TINY = PACKAGE.parents[1] / "engine" / "shipped" / "tiny"
TARGET = PACKAGE / "tests" / "text-vectors.json"

TEXTS = [
    "",
    " ",
    "   \t\t \n\n\r\n  x",
    "def parse(line: str) -> list[str]:\n    return line.split(',')  # 1234567\n",
    "for (let i = 0; i < 10; i++) { a[i] ??= `${i}\\n`; }",
    "naïve café, Ångström, İstanbul, ﬁ ligature",
    "e\u0301 a\u0308\u0323 \u1112\u1161\u11ab",
    "👩‍👩‍👧‍👦 👍🏽 🇨🇭 ☕️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "日本語のテキスト、漢字。中文，한국어 ไทย हिन्दी",
    "שלום عَرَبِيّ \u200f\u200e\u202e",
    "don't I'll we've it's THEY'RE 'quoted' ''",
    "a" * 300,
    "    " * 40 + "pass",
    "\x00\x01\x7f\u0080\u00a0\u2028\u3000\ufeff\ufffd",
    "<|endoftext|> <|endoftext|>x<|endoftext|>",
    "١٢٣ ²³ ½ ⅷ 1,234.5e-6 0x1F",
    "https://example.org/a?b=c&d=%20#e ~/.cache $HOME",
    "\U0001f600\U00010348\U000e0041",
]
CHATS: list[list[dict[str, str | None]]] = [
    [{"role": "user", "content": "hello"}],
    [
        {"role": "system", "content": "Be <brief> & kind.\nAlways."},
        {"role": "user", "content": "  naïve 👋\n"},
        {"role": "assistant", "content": "hi", "reasoning": "They greet.", "tool_calls": None},
        {"role": "user", "content": "and?"},
    ],
]


def vectors() -> str:
    """The file's content."""
    codec = TextCodec.from_folder(TINY)
    texts = []
    for text in TEXTS:
        ids = codec.encode(text)
        texts.append(
            {
                "text": text,
                "ids": ids,
                "special_ids": codec.encode(text, add_special_tokens=True),
                "decoded": codec.decode(ids),
                "skipped": codec.decode(ids, skip_special_tokens=True),
            }
        )
    chats = [
        {
            "messages": chat,
            "rendered": codec.render_chat(chat),
            "closed": codec.render_chat(chat, add_generation_prompt=False),
        }
        for chat in CHATS
    ]
    found = {
        "digest": codec.digest,
        "eos_token_id": codec.eos_token_id,
        "stop_token_ids": list(codec.stop_token_ids),
        "texts": texts,
        "chats": chats,
    }
    return json.dumps(found, indent=1) + "\n"


def main() -> None:
    """Writes, or checks with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on a change")
    if not parser.parse_args().check:
        TARGET.write_text(vectors(), "utf-8")
    elif TARGET.read_text("utf-8") != vectors():
        raise SystemExit(f"{TARGET.name} differs: run sdks/typescript/scripts/text_vectors.py")


if __name__ == "__main__":
    main()
