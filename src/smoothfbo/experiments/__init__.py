"""What to run: a configuration and a function for each experiment."""
