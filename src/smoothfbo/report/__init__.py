"""Tables and figures from stored results; nothing here computes an experiment."""
