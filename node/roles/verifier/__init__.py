"""The verifier role: sessions over the wire, their turns, their pairing with a proposer."""
