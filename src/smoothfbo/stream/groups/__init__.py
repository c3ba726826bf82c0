"""Many series in one table: one learner for each, all of them in one compiled program."""
