"""What is found out about a loaded verifier on this machine: exactness, threads, step times."""
