"""Steps of λ that find their own length: the lengths, the usual sizes of gradients, the way back from a flat place."""

from smoothfbo.adaptive.lengths import adaptive_steps

__all__ = ["adaptive_steps"]
