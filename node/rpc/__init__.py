"""gRPC as this node uses it: settings, listening, health, and the one table of errors."""
