"""Products of columns, whose coefficients recursive least squares finds (see `random_features`): where one column
decides how another one counts, a function is not linear in either, but in their product.

    φ(x) = (z, 1, a(z_i)·cut(z_j), …),   a(z_i) = cut(z_i) = z_i cut to ±2,   or z_i cut to ±1, which is a soft switch

Only the table's own columns are multiplied: lags of the target and the calendar are not. Products of two columns come
first. Those of a text column are there level by level, in the order in which levels appear; a switch says nothing new
about them. Then come the switches of numbers; z_i times its own switch is a soft |z_i|. If there are too many, chance
decides.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

COUNT = 64
CLIP, SWITCH = 2.0, 1.0
NUMBER = -1  # the place of a column that is no level of a text column
LATE = 4  # products with the first levels of text columns stand before the switches, those with further ones after


class Products(NamedTuple):
    """The columns i and j of every product, and whether z_i is a switch; numbers, not traced."""

    one: Int[np.ndarray, " products"]
    other: Int[np.ndarray, " products"]
    is_switch: Bool[np.ndarray, " products"]

    @property
    def limits(self) -> Float[np.ndarray, " products"]:
        """Where z_i is cut."""
        return np.where(self.is_switch, SWITCH, CLIP)


def choose(places: tuple[int, ...], seed: int) -> Products:
    """At most `COUNT` products of the first columns, of each of which `places` says which level it is, or `NUMBER`."""
    place = np.array(places, int)
    is_number = place == NUMBER
    text = np.where(is_number, -1 - np.arange(len(place)), np.cumsum(place == 0))  # which text column a level is of
    one, other = np.divmod(np.arange(len(place) ** 2), max(len(place), 1))
    is_product = (one < other) & (text[one] != text[other])
    is_switch = is_number[one] & is_number[other]
    both = np.stack([np.r_[one[is_product], one[is_switch]], np.r_[other[is_product], other[is_switch]]], axis=1)
    is_switch = np.arange(len(both)) >= np.sum(is_product)
    late = np.where(is_switch & (both[:, 0] != both[:, 1]), LATE, np.maximum(place[both].max(axis=1), 0))
    order = np.random.default_rng(seed).permutation(len(both))
    chosen = order[np.argsort(late[order], kind="stable")][:COUNT]
    return Products(both[chosen, 0], both[chosen, 1], is_switch[chosen])


def multiply(inputs: Float[Array, "rows p"], products: Products) -> Float[Array, "rows size"]:
    """φ of standardised rows whose last column is the constant."""
    limits = jnp.asarray(products.limits)
    factors = jnp.clip(inputs[:, products.one], -limits, limits), jnp.clip(inputs[:, products.other], -CLIP, CLIP)
    return jnp.concatenate([inputs, factors[0] * factors[1]], axis=1)
