"""One verifier that a group of ranks computes together: its protocol, without sockets."""
