"""What a `restored` cache gets back of the positions that it evicted."""
