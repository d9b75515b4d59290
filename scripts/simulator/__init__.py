"""A fleet in virtual time: the rules of `fleet.membership`, run by thousands of nodes at once.

Every node has the `Membership` of the agent and is driven by the same `step` and the same
messages; what is simulated is what lies around them: the clock (`agenda`), the network
(`network`, `faults`), the processes (`fleet`), those who mean harm (`adversaries`). Nothing
but the seed decides what happens, so that a failure is repeated by its seed.
"""
