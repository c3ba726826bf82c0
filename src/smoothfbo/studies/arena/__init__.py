"""The arena: every online bilevel method on problems whose answer moves, judged by the truth."""

from smoothfbo.studies.arena.entries import LARGEST_WINDOW, ArenaMethod, ArenaProblem

__all__ = ["LARGEST_WINDOW", "ArenaMethod", "ArenaProblem"]
