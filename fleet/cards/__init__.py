"""What one node says of itself: its card, its liveness, its addresses, what it signs."""
