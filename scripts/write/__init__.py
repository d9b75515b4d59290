"""Files that are written from others: stubs, references, figures, monitoring."""
