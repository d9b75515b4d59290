"""The node of Kakeya Fleet: `fleet` decides, `engine` computes, `node` runs both."""

VERSION = "0.1.0"
"""What a node says that it is. `scripts.write.versions` writes it."""
