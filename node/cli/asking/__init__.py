"""From a command to the node, model and prompt that it means."""
