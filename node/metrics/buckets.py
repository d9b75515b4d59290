"""The bounds of the histograms' buckets."""

# 50 us to 2.5 s: a loopback round trip to a stalled draft.
SHORT_SECONDS = (
    5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
# 5 ms to two minutes: a cached prompt to a long prefill on two slow cores.
LONG_SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip
# One a forward, as without drafts, to the widest block that is verified at once.
TOKENS_A_FORWARD = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 32.0)
# A question to a context that no single machine keeps.
HISTORY_TOKENS = tuple(float(1 << power) for power in range(6, 21, 2))
# The same, as fine as lengths double; a prompt may be one token.
DOUBLING_TOKENS = tuple(float(1 << power) for power in range(21))
# From the shortest that counts to one at which peers take the node for dead.
STALL_SECONDS = (0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
