"""Roads beside the control stream: shared memory, and a ring of two child processes."""
