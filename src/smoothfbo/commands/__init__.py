"""The commands. jax is imported only when something runs, so that `--help` answers at once."""
