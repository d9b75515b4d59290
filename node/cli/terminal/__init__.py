"""The terminal: streams, widths, tables, keys, screens."""
