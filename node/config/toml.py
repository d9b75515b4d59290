"""Values of a configuration as TOML writes them."""

from __future__ import annotations

import json


def toml_value(value: object) -> str:
    """A text, a number, yes or no, or a list of them."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's; DEL alone needs one there and gets none.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
