"""`fleet logs`: the events of a node, and the lines of its log where this machine has the file."""
