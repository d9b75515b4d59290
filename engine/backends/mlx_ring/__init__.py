"""MLX's ring in a process of its own; imports mlx.core and nothing of mlx-lm, for a quick start."""
