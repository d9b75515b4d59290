"""Grammars that answers obey: compiled for a tokenizer, within bounds, off the event loop."""
