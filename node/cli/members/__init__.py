"""Who belongs to a fleet with an authority: made, shown, put out."""
