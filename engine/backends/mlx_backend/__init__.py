"""The MLX back end."""
