"""Keys and values in fewer bits: tiles of 64 positions of a head, in numpy."""
