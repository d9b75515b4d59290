"""The node of Kakeya Fleet: `fleet` decides, `engine` computes, `node` runs both."""
