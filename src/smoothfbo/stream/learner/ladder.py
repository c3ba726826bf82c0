"""Which experts there are: families of ridge regressions under every rate of a ladder. No jax here.

One family predicts the target; two predict its difference from the last known value, with a ridge of 1 and of 10: they
begin as persistence and leave it when the data say so. The ridge is on sums, not on means: it fades as rows come in.
"""

from typing import NamedTuple


class Family(NamedTuple):
    """Ridge regressions under every rate of the ladder, on the target or on its difference from the last value."""

    name: str
    ridge: float
    of_difference: bool


FAMILIES = (
    Family("forgetting", 0.1, False),
    Family("difference", 1.0, True),
    Family("cautious_difference", 10.0, True),
)


PRODUCTS = ("products", "products_difference")  # experts for numbers; see `products`
NEIGHBOURS = ("neighbours", "weighted_neighbours")  # experts for classes; see `neighbours`
LINEAR_RATE = 6  # of the expert whose errors the random features learn, or the next below: a memory of 64 blocks


def ladder(rates: int) -> tuple[int, ...]:
    """Which of the rates have experts: memories of 1, 2, 4, 16, 64, … blocks, and all of the past."""
    return (*(k for k in range(rates - 1) if k <= 2 or k % 2 == 0), rates - 1)


def ladder_names(rates: int) -> tuple[str, ...]:
    def name(family: Family, k: int) -> str:
        if family.of_difference:
            return f"{family.name}_{'all' if k == rates - 1 else 2**k}"
        return "all_past" if k == rates - 1 else "last_block" if k == 0 else f"{family.name}_{2**k}"

    return tuple(name(family, k) for family in FAMILIES for k in ladder(rates))
