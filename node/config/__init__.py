"""What a node is told and what it runs on: configuration, roles, state directory, machine."""
