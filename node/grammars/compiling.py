"""From a grammar's text to a matcher of llguidance, within bounds.

The library counts what it does and gives up, so that no text makes it compute for minutes or
take gigabytes: the counts are here. What it does not count is bounded before: the depth of its
own calls, which follow chains of rules, by a deep stack (`deep_thread.STACK_BYTES` for what
`grammar.MAX_GRAMMAR_BYTES` can chain), and in `grammar` what Lark can say that takes long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kakeya_fleet.node.grammars.grammar import Grammar, GrammarKind
from kakeya_fleet.node.grammars.refusal_text import refusal_text

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

COMPILE_FUEL = 500_000
"""For building a grammar's automaton: some 50,000 a millisecond."""
STEP_FUEL = 100_000
"""For one step of it: some 14,000 a millisecond."""
STEP_ITEMS = 10_000
"""Of the parser's in one step: some 20,000 a millisecond."""
AUTOMATON_STATES = 16_000
"""One to two kB each."""
GRAMMAR_SYMBOLS = 10_000
"""In all rules together."""
WHITESPACE = r"[\x20\x0A\x0D\x09]{1,32}"
"""Between JSON's tokens, where any may be: a model that likes spaces comes to an end of them."""


def compiled(grammar: Grammar, vocabulary: LLTokenizer) -> LLMatcher:
    """A matcher that has taken nothing. Raises `GrammarRefused`.

    Takes a millisecond to twenty, of large grammars up to some seconds; without the
    interpreter's lock for most of them.
    """
    # As in `vocabulary`.
    from llguidance import LLMatcher, LLParserLimits  # noqa: PLC0415

    limits = LLParserLimits(
        initial_lexer_fuel=COMPILE_FUEL,
        step_lexer_fuel=STEP_FUEL,
        step_max_items=STEP_ITEMS,
        max_lexer_states=AUTOMATON_STATES,
        max_grammar_size=GRAMMAR_SYMBOLS,
        # Else what it knows of other texts would be told.
        verbose_errors=False,
    )
    try:
        matcher = LLMatcher(vocabulary, _described(grammar), log_level=0, limits=limits)
    except ValueError as error:
        raise grammar.refused(f"cannot be compiled: {refusal_text(str(error))}") from error
    # The first step too: it tells of some grammars that no text fits them.
    matcher.compute_logit_bias()
    if matcher.is_error():
        raise grammar.refused(f"cannot be compiled: {refusal_text(matcher.get_error())}")
    return matcher


def _described(grammar: Grammar) -> str:
    """The grammar in the library's own words."""
    # As in `vocabulary`.
    from llguidance import LLMatcher  # noqa: PLC0415

    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            options = {"whitespace_pattern": WHITESPACE}
            return LLMatcher.grammar_from_json_schema(grammar.text, overrides=options)  # type: ignore[arg-type]
        case GrammarKind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.text)
        case GrammarKind.LARK:
            return LLMatcher.grammar_from_lark(grammar.text)
