"""What an answer cost, and what the fleet did for it."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.node.http.answering import End


def usage(prompt_token_count: int, ends: Sequence[End]) -> dict[str, object]:
    """OpenAI's usage of a request."""
    completion = sum(end.token_count for end in ends)
    cached = cached_tokens(ends)
    return {
        "prompt_tokens": prompt_token_count,
        "completion_tokens": completion,
        "total_tokens": prompt_token_count + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0,
            "audio_tokens": 0,
            "reasoning_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def cached_tokens(ends: Sequence[End]) -> int:
    """Tokens of the prompt that an earlier turn had left computed; those of one that is kept."""
    return max((end.cached_count for end in ends), default=0)


def fleet_report(ends: Sequence[End]) -> dict[str, object]:
    """The `kakeya` object of an answer: one item a choice, null where the node did not say."""
    return {"choices": [_choice(end) for end in ends]}


def _choice(end: End) -> dict[str, object]:
    report: dict[str, object] = {
        "index": end.index,
        "node": end.address,
        "generated_tokens": end.generated_count,
        "acceptance_length": end.generated_count / end.forward_count if end.forward_count else 0.0,
        "verify_forwards": end.forward_count,
        "accepted_tokens": end.accepted_count,
        "drafted_tokens": None,
        "forbidden_tokens": None,
        "proposer": None,
        "seed": None,
        "prefill_seconds": end.prefill_seconds,
        "first_token_seconds": None,
        "total_seconds": None,
        "forgotten_tokens": None,
        "resumptions": [
            {
                "from": each.from_address,
                "to": each.to_address,
                "reason": str(each.reason),
                "history_length": each.history_length,
                "seconds": each.seconds,
            }
            for each in end.resumptions
        ],
    }
    done = end.done
    if done is not None:
        speculation = done.speculation
        report |= {
            "acceptance_length": speculation.acceptance_length,
            "verify_forwards": speculation.verify_forward_count,
            "accepted_tokens": speculation.accepted_count,
            "drafted_tokens": speculation.drafted_count,
            "forbidden_tokens": speculation.forbidden_count,
            "proposer": speculation.proposer_model_id or None,
            "drop_reason": speculation.drop_reason.value if speculation.drop_reason else None,
            "seed": done.seed,
            "first_token_seconds": done.timings.first_token_seconds,
            "total_seconds": done.timings.total_seconds,
            "forgotten_tokens": done.forgotten_token_count,
            "recomputed_tokens": done.recomputed_token_count,
            "kv_quality": done.kv_quality.value if done.kv_quality else None,
        }
    return report
