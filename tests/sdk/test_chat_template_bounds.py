"""A template that loops without end, or reaches for what is Python's, ends by name."""

from __future__ import annotations

import pytest

from kakeya import chat_template
from kakeya.chat_template import ChatTemplate
from kakeya.errors import ChatTemplateError

CHAT = [{"role": "user", "content": "hi"}]
ENDLESS = {
    "loops within loops": (
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
    ),
    "turns that are left out": (
        "{% for a in range(100000) %}{% for b in range(100000) if false %}{% endfor %}{% endfor %}"
    ),
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"
    ),
}
REACHING = {
    "an attribute": "{{ messages.__class__ }}",
    "a class's bases": "{{ ''.__class__.__mro__ }}",
    "a function's globals": "{{ raise_exception.__globals__ }}",
    "what counts its steps": "{{ count_step() }}",
}


def render(source: str) -> str:
    return ChatTemplate(source).render(CHAT, tools=None, add_generation_prompt=True, variables={})


@pytest.mark.parametrize("case", ENDLESS)
def test_it_ends(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MOST_STEPS", 10_000)
    with pytest.raises(ChatTemplateError, match="more than 10,000 steps"):
        render(ENDLESS[case])


@pytest.mark.parametrize("case", REACHING)
def test_it_gets_nothing_of_python(case: str) -> None:
    try:
        assert render(REACHING[case]) == ""
    except ChatTemplateError:
        return


def test_each_rendering_has_all_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MOST_STEPS", 20)
    template = ChatTemplate(
        "{% macro f(x) %}{{ x }}{% endmacro %}"
        "{% for x in range(8) if x % 2 %}{{ f(x) }}{% endfor %}{% for m in messages %}"
        "{{ m.content }}{% endfor %}"
    )
    for _ in range(3):
        found = template.render(CHAT, tools=None, add_generation_prompt=True, variables={})
        assert found == "1357hi"
