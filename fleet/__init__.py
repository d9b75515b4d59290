"""What the fleet knows and decides: pure, without sockets, clocks and tensors."""
