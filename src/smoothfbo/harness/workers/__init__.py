"""Lanes in other processes, here or on a cluster: blocks of them, who runs these, and what if a process dies."""
