"""Links over gRPC: opened, served, and their messages on the wire."""
