"""`fleet service`: a node that the machine's own service manager starts and keeps running."""
