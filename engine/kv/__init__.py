"""Which slot holds which position, and what every cache keeps count of."""
