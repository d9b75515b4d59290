"""What docs/figures.md says of a plain model that drafts for the published one."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.write.figures_register import FIGURES, Declared, Report, Said, Table

REPORT = "plain_drafts"
HEATS = ("greedy", "at 0.7")
FORWARDS = "draft_forwards"
OWN = ("alone", "n-gram", "plain int4", "auto")
HEAD = "| tokens a second | chat | code | lists | rewriting | all |"


def speeds(found: Report) -> list[str]:
    """A row a side, its medians by kind and of all answers."""
    kinds = found["tokens_per_second"]
    return [
        f"| {name} | "
        + " | ".join(f"{by_side[name]:.0f}" for by_side in kinds.values())
        + f" | {overall:.0f} |"
        for name, overall in found["all_kinds"].items()
    ]


def drafting(found: Report) -> Sequence[str]:
    """Tokens a forward by kind, and the share of what the plain model drafted that was taken."""
    kinds = found["drafting"].values()
    forwards = [each["plain int4"]["tokens_a_forward"] for each in kinds]
    accepted = [each["plain int4"]["accepted_share"] for each in kinds]
    return [
        f"{min(forwards):.1f}",
        f"{max(forwards):.1f}",
        f"{100 * min(accepted):.0f}",
        f"{100 * max(accepted):.0f}",
        str(found["answers_that_differ"]),
    ]


def ratios(found: Report) -> Sequence[str]:
    """Over decoding alone, of all answers: the plain drafter, n-grams, and llama.cpp's drafts."""
    every = found["all_kinds"]
    rivals = [name for name in every if name not in OWN]
    alone, *drafted = (every[name] for name in rivals)
    return [
        f"{every['plain int4'] / every['alone']:.2f}",
        f"{every['n-gram'] / every['alone']:.2f}",
        f"{max(drafted) / alone:.2f}",
    ]


def forwards_for_drafts(found: Report) -> Sequence[str]:
    """Milliseconds a drafted token, and accepted shares: by a verifier's forwards and its own."""
    sides = [found[heat][side] for heat in HEATS for side in ("as it verifies", "as it drafts")]
    return [
        *(f"{each['milliseconds_a_token']:.1f}" for each in sides[:2]),
        *(f"{100 * each['accepted_share']:.1f}" for each in sides),
    ]


def given_histories(found: Report) -> Sequence[str]:
    """Prompts' tokens; milliseconds before a first draft, read and given; then accepted shares."""
    read, given = (found[HEATS[0]][side] for side in ("as it drafts", "given"))
    return [
        *map(str, found["prompt_tokens"]),
        *(f"{each['milliseconds_before']:.0f}" for each in (read, given)),
        *(f"{100 * found[heat]['given']['accepted_share']:.1f}" for heat in HEATS),
    ]


def second_choices(found: Report) -> Sequence[str]:
    """Shares of right first choices, of right second ones, and what a tree would win."""
    greedy, drawn = found["greedy"], found["at 0.7"]
    return [
        f"{100 * greedy['first_right']:.1f}",
        f"{100 * drawn['first_right']:.1f}",
        f"{100 * drawn['second_right_where_first_is_not']:.0f}",
        f"{drawn['tree_over_chain']:.2f}",
    ]


PLAIN_DRAFTS: Sequence[Declared] = (
    Said(
        FIGURES,
        "its first choice is right at {} % of places greedily and at {} % at the temperature, "
        "where it is not its second one at {} %, and the best chain with them, were their mask and "
        "their keys free, is {} times as fast",
        "second_choices",
        second_choices,
    ),
    Table(FIGURES, HEAD, REPORT, speeds),
    Said(
        FIGURES,
        "With it {} to {} tokens come of a forward by kind, and {} to {} % of what it drafts is "
        "taken; {} answers differ from those without.",
        REPORT,
        drafting,
    ),
    Said(
        FIGURES,
        "Over decoding alone, of all answers: {} times with the plain drafter, {} with n-grams; "
        "llama.cpp's best drafts {} times over its own decoding.",
        REPORT,
        ratios,
    ),
    Said(
        FIGURES,
        "A drafted token takes {} ms by the former and {} so; accepted are {} and {} % of "
        "them greedily, {} and {} % at the temperature.",
        FORWARDS,
        forwards_for_drafts,
    ),
    Said(
        FIGURES,
        "behind prompts of {} to {} tokens a first draft comes {} ms later where they are read, {} "
        "where they are given; accepted are {} and {} % then.",
        FORWARDS,
        given_histories,
    ),
)
