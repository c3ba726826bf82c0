"""Environments in pure JAX, and the same ones for gymnasium. Import the modules: this package loads nothing."""
