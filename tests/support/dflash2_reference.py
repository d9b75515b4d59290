"""A DFlash 2 drafter as its formulae say it, number by number in double precision.

Nothing here is the engine's: it reads a checkpoint's config and tensors, and sums in loops.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Rows = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class ReferenceDraft:
    """What a block gives: hidden states of all rows, the logits and the path of all but the first.

    `confidences` are how sure the head was of each token, `tokens` those before the cut.
    """

    hidden: Rows
    logits: Rows
    path: tuple[int, ...]
    confidences: tuple[float, ...]
    tokens: tuple[int, ...]


class ReferenceDrafter:
    """Reads `folder`; `embedding` and `head` [vocabulary_size, hidden_size] are the target's."""

    def __init__(self, folder: Path, embedding: Rows, head: Rows) -> None:
        entries = json.loads((folder / "config.json").read_bytes())
        self.entries = entries | entries["dflash_config"]
        stored = load_file(folder / "model.safetensors")
        self.weights = {name: tensor.astype(np.float64) for name, tensor in stored.items()}
        self.embedding = embedding.astype(np.float64)
        self.head = head.astype(np.float64)

    def draft(
        self, features: Rows, last_token: int, count: int, threshold: float
    ) -> ReferenceDraft:
        """`count` tokens behind `last_token`, which stands behind the positions of `features`.

        Those are the target's hidden states [n, taps, hidden_size]; the block is cut before the
        first token that the head trusts less than `threshold`.
        """
        masks = [self.entries["mask_token_id"]] * count
        scale = self.entries.get("input_embedding_scale", 1.0)
        hidden = np.stack([self.embedding[token] * scale for token in (last_token, *masks)])
        context = (
            np.stack(
                [self._norm("fc", self.weights["fc.weight"] @ row.reshape(-1)) for row in features]
            )
            if len(features)
            else np.zeros((0, hidden.shape[1]))
        )
        for layer in range(self.entries["num_hidden_layers"]):
            hidden = self._layer(layer, hidden, context)
        hidden = np.stack([self._norm("", row) for row in hidden])
        logits = hidden[1:] @ self.head.T
        path, confidences = self._walk(hidden[1:], logits, last_token)
        sure = 0
        while sure < count and not confidences[sure] < threshold:
            sure += 1
        return ReferenceDraft(hidden, logits, tuple(path), tuple(confidences), tuple(path[:sure]))

    def _norm(self, name: str, row: Rows) -> Rows:
        gain = {"fc": "hidden_norm.weight", "": "norm.weight"}.get(name, name)
        mean = sum(float(number) ** 2 for number in row) / len(row)
        normed: Rows = row / math.sqrt(mean + self.entries["rms_norm_eps"]) * self.weights[gain]
        return normed

    def _convolved(self, name: str, side: int, rows: Rows, normed: Rows) -> Rows:
        """out[i, c] = sum_t (base[t, c] + delta[i, t, g(c)]) x[i - t, c]."""
        base = self.weights[f"{name}.base_kernel"][side]
        taps, channels = base.shape
        size = self.entries["conv_group_size"]
        groups = channels // size
        projection = self.weights[f"{name}.kernel_projection.weight"]
        out = np.zeros_like(rows)
        for i in range(len(rows)):
            deltas = projection @ normed[i]
            for t in range(min(taps, i + 1)):
                for c in range(channels):
                    delta = deltas[(side * taps + t) * groups + c // size]
                    out[i, c] += (base[t, c] + delta) * rows[i - t, c]
        return out

    def _layer(self, index: int, hidden: Rows, context: Rows) -> Rows:
        name = f"layers.{index}."
        normed = np.stack([self._norm(f"{name}input_layernorm.weight", row) for row in hidden])
        seen = self._convolved(f"{name}attention_conv", 0, normed, normed)
        attended = self._attention(index, seen, context)
        projected = attended @ self.weights[f"{name}self_attn.o_proj.weight"].T
        hidden = hidden + self._convolved(f"{name}attention_conv", 1, projected, normed)
        normed = np.stack(
            [self._norm(f"{name}post_attention_layernorm.weight", row) for row in hidden]
        )
        seen = self._convolved(f"{name}mlp_conv", 0, normed, normed)
        gate = seen @ self.weights[f"{name}mlp.gate_proj.weight"].T
        up = seen @ self.weights[f"{name}mlp.up_proj.weight"].T
        down = (gate / (1.0 + np.exp(-gate)) * up) @ self.weights[f"{name}mlp.down_proj.weight"].T
        return hidden + self._convolved(f"{name}mlp_conv", 1, down, normed)

    def _attention(self, index: int, rows: Rows, context: Rows) -> Rows:
        name = f"layers.{index}.self_attn."
        heads, shared = self.entries["num_attention_heads"], self.entries["num_key_value_heads"]
        head_dim = self.entries["head_dim"]
        began = len(context)
        # Context positions are not convolved.
        every = np.concatenate((context, rows))
        keys = (every @ self.weights[f"{name}k_proj.weight"].T).reshape(-1, shared, head_dim)
        values = (every @ self.weights[f"{name}v_proj.weight"].T).reshape(-1, shared, head_dim)
        queries = (rows @ self.weights[f"{name}q_proj.weight"].T).reshape(-1, heads, head_dim)
        turned = [
            [
                self._turned(self._norm(f"{name}k_norm.weight", key), j)
                for j, key in enumerate(keys[:, of])
            ]
            for of in range(shared)
        ]
        out = np.zeros((len(rows), heads, head_dim))
        for i in range(len(rows)):
            for head in range(heads):
                of = head // (heads // shared)
                query = self._turned(
                    self._norm(f"{name}q_norm.weight", queries[i, head]), began + i
                )
                visible = [j for j in range(len(every)) if self._sees(index, began + i, j)]
                scores = np.array([query @ turned[of][j] / math.sqrt(head_dim) for j in visible])
                weights = np.exp(scores - scores.max())
                out[i, head] = weights / weights.sum() @ values[visible, of]
        return out.reshape(len(rows), -1)

    def _sees(self, layer: int, query: int, key: int) -> bool:
        """A window of s positions is one of distances below s."""
        sliding = self.entries["layer_types"][layer] == "sliding_attention"
        causal = self.entries.get("is_causal")
        if (sliding if causal is None else causal) and key > query:
            return False
        return not sliding or abs(query - key) < self.entries["sliding_window"]

    def _turned(self, row: Rows, position: int) -> Rows:
        half = len(row) // 2
        turned = np.zeros_like(row)
        for n in range(half):
            angle = position / self.entries["rope_theta"] ** (2 * n / len(row))
            cos, sin = math.cos(angle), math.sin(angle)
            turned[n] = row[n] * cos - row[n + half] * sin
            turned[n + half] = row[n + half] * cos + row[n] * sin
        return turned

    def _walk(self, hidden: Rows, logits: Rows, last_token: int) -> tuple[list[int], list[float]]:
        """edge(p -> c) = <A[p] * project(h), B[c]> + unary[c], the best c of each row in turn."""
        predecessors = self.weights["candidate_selector.predecessor_codebook"]
        successors = self.weights["candidate_selector.successor_codebook"]
        projection = self.weights["candidate_selector.hidden_projection.weight"]
        path: list[int] = []
        confidences: list[float] = []
        before = last_token
        for h, row in zip(hidden, logits, strict=True):
            confidences.append(self._confidence(h, predecessors[before]))
            projected = projection @ h
            ranked = sorted(range(len(row)), key=lambda token: (-row[token], token))
            worth = {}
            for c in ranked[: self.entries["selector_top_k"]]:
                pair = sum(
                    predecessors[before, r] * projected[r] * successors[c, r]
                    for r in range(len(projected))
                )
                worth[c] = pair + self._unary(float(row[c]))
            before = max(worth, key=lambda token: worth[token])
            path.append(before)
        return path, confidences

    def _unary(self, logit: float) -> float:
        value = logit * float(self.entries.get("output_multiplier", 1.0))
        cap = self.entries.get("final_logit_softcapping")
        return value if cap is None else float(cap) * math.tanh(value / float(cap))

    def _confidence(self, hidden: Rows, before: Rows) -> float:
        """1 without a head: sigmoid(<w, hidden (and the token before)> + b)."""
        if not self.entries.get("enable_confidence_head"):
            return 1.0
        parts: Sequence[Rows] = [hidden]
        if self.entries["confidence_head_with_markov"]:
            parts = [hidden, before]
        made = self.weights["confidence_head.proj.weight"][0] @ np.concatenate(parts)
        return 1.0 / (1.0 + math.exp(-(made + self.weights["confidence_head.proj.bias"][0])))
