"""Running experiments and keeping their files."""
