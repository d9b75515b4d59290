"""The agent: everything with sockets, clocks and files; composes the other rooms."""
