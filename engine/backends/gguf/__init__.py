"""GGUF files made into folders in the hub's format, with torch."""
