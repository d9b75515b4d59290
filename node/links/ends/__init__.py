"""One end of a link: its control stream, and the roads beside it. Knows no wire types."""
