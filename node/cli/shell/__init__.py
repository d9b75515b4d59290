"""The command group: dispatch, completion, how commands fail."""
