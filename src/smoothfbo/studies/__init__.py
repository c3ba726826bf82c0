"""The studies: one folder each, found by the command line without being named anywhere."""
