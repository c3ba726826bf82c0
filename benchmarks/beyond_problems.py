"""Small drifting problems with an exact gap, none of them of the arena: what `recommended_beyond` runs methods on.

A problem is a function of a seed, which may be traced; it draws all that is random but the data of the rounds.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import smoothfbo as sf


class Case(NamedTuple):
    """A problem with its exact gap F_t(λ) − min F_t. Without losses there is an `oracle` for the hypergradient."""

    source: Callable[[Any, Any], Any]
    start: Any
    gap: Callable[[Any, Any], Any]
    problem: sf.Problem | None = None
    linear: sf.Linear | None = None
    project: Callable[[Any], Any] | None = None
    oracle: Callable[[Any, Any, Any], Any] | None = None
    units: float = 1.0  # of λ: rates of rivals are in these
    best: Callable[[Any], Any] | None = None  # of a round, where a problem gives it


def goes_round(center: Any, first: Any, second: Any, period: float, t: Any) -> Any:
    angle = 2 * jnp.pi * t / period
    return center + jnp.cos(angle) * first + jnp.sin(angle) * second


def frame(key: Any, count: int, size: int) -> Any:
    """Orthonormal rows."""
    return jnp.linalg.qr(jax.random.normal(key, (size, count)))[0].T


def identity(x: Any) -> Any:
    return x


# Three sources, which are wrong in turn

WRONG, SOURCE_SAMPLES, OUTER_SAMPLES, RIDGE = 3, 16, 32, 1e-3


def moving_amounts(t: Any, start: Any) -> Any:
    """How wrong each source is: between 0.2 and 1, once in 600 rounds."""
    return 0.6 + 0.4 * jnp.cos(2 * jnp.pi * (t / 600 + start - jnp.arange(WRONG) / WRONG))


def one_is_right(t: Any, start: Any) -> Any:
    """Another one every 150 rounds."""
    del start
    return jnp.where(jnp.arange(WRONG) == (t // 150) % WRONG, 0.0, 2.4)


def gaussian(key: Any, shape: Any, t: Any) -> Any:
    del t
    return 0.3 * jax.random.normal(key, shape)


def student(key: Any, shape: Any, t: Any) -> Any:
    del t
    return 0.3 * jax.random.t(key, 1.5, shape)


def cauchy(key: Any, shape: Any, t: Any) -> Any:
    del t
    return 0.3 * jax.random.cauchy(key, shape)


def bursts(key: Any, shape: Any, t: Any) -> Any:
    """Thirty times the noise for fifty rounds in two hundred."""
    return jnp.where(t % 200 < 50, 9.0, 0.3) * jax.random.normal(key, shape)


def sources(
    seed: Any,
    *,
    weights: Any = jax.nn.softmax,
    start: Any = 0.0,
    amounts: Any = moving_amounts,
    inner_noise: Any = gaussian,
    outer_noise: Any = gaussian,
    factor: Any = lambda t: 1.0,  # noqa: ARG005
    counted: Any = None,
    project: Any = None,
    units: float = 1.0,
) -> Case:
    """Source k gives xᵀ(f + c_{t,k} e_k) + noise, the outer data xᵀf + noise; x ~ N(0, I), and the e_k are orthonormal.

    With the weights w(λ) of the sources and the ridge ρ, h = Σ_k 2w_k (f + c_{t,k} e_k)/(ρ + Σ_k 2w_k), and F_t(λ) − σ²
    is its squared distance from f; best is w_k ∝ 1/c_{t,k}². All outer targets are multiplied by `factor` in some
    rounds. `counted` says how many samples of each kind a round has; the others have weight 0.
    """
    keys = jax.random.split(jax.random.key(seed), 2)
    truth, place = jax.random.normal(keys[0], (4,)) / 2, jax.random.uniform(keys[1])
    which = jnp.tile(jnp.arange(WRONG), SOURCE_SAMPLES)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 5)
        x, z = jax.random.normal(keys[0], (len(which), 4)), jax.random.normal(keys[1], (OUTER_SAMPLES, 4))
        wrong = (amounts(t, place)[:, None] * jnp.eye(WRONG, 4))[which]
        inner = jnp.sum(x * (truth + wrong), axis=1) + inner_noise(keys[2], which.shape, t)
        outer = factor(t) * (z @ truth + outer_noise(keys[3], (OUTER_SAMPLES,), t))
        data = sf.Data(
            sf.Samples(x, {"target": inner, "source": which}),
            sf.Samples(z, {"target": outer, "source": jnp.zeros(OUTER_SAMPLES, which.dtype)}),
        )
        if counted is None:
            return data
        number = counted(keys[4])
        return sf.Data(*(part._replace(weight=jnp.arange(part.size) < number) for part in (data.inner, data.outer)))

    def gap(t: Any, outer: Any) -> Any:
        squares, each = amounts(t, place) ** 2, 2 * weights(outer)
        error = (each * amounts(t, place)) @ jnp.eye(WRONG, 4) - RIDGE * truth
        right = jnp.min(squares) == 0
        least = jnp.where(right, 0, 1 / jnp.sum(1 / jnp.where(right, 1, squares)))
        return jnp.sum((error / (RIDGE + jnp.sum(each))) ** 2) - least

    problem = sf.Problem(
        lambda outer, v, x, y: WRONG * weights(outer)[y["source"]] * (v - y["target"]) ** 2,  # noqa: ARG005
        lambda outer, v, x, y: (v - y["target"]) ** 2,  # noqa: ARG005
    )
    begin = jnp.zeros(WRONG) + start
    return Case(draw, begin, gap, problem, sf.Linear(identity, ridge=RIDGE), project, units=units)


# Instruments

STRENGTHS = (1.0, 0.8, 0.65, 0.5)


def circling(t: Any, keys: Any, period: float = 600.0) -> Any:
    """Once round a circle of radius 1, whose centre has norm 1."""
    return goes_round(*frame(keys, 3, len(STRENGTHS)), period, t)


def calm(t: Any, keys: Any) -> Any:
    """The same for six hundred rounds, then something else."""
    before, after, _ = frame(keys, 3, len(STRENGTHS))
    return jnp.where(t < 600, before, 3 * after)


def one_moves(t: Any, keys: Any) -> Any:
    """One coordinate, once in forty rounds."""
    center, _, _ = frame(keys, 3, len(STRENGTHS))
    return center + jnp.eye(len(STRENGTHS))[0] * jnp.sin(2 * jnp.pi * t / 40)


def instrument(
    seed: Any,
    *,
    parameter: Any = circling,
    strengths: Any = STRENGTHS,
    units: float = 1.0,
    project: Any = None,
    factors: bool = False,
) -> Case:
    """x = Πz + e and y = βᵀx + cᵀe + ξ with z ~ N(0, I), ‖c‖ = 1. λ should be β_t: F_t(λ) = ‖Πᵀ(λ − β_t)‖² + const.

    `units` multiplies β and λ. With `factors` λ is a pair (u, v), and u·v stands where λ stood.
    """
    keys = jax.random.split(jax.random.key(seed), 3)
    first_stage = jnp.array(strengths)[:, None] * frame(keys[0], len(strengths), 6)
    confounder = frame(keys[1], 1, len(strengths))[0]

    def value(outer: Any) -> Any:
        return (outer["u"] * outer["v"] if factors else outer) / units

    def samples(t: Any, key: Any) -> sf.Samples:
        keys = jax.random.split(key, 3)
        z = jax.random.normal(keys[0], (64, 6))
        error = 0.5 * jax.random.normal(keys[1], (64, len(strengths)))
        x = z @ first_stage.T + error
        y = x @ parameter(t, keys_of_path) + error @ confounder + 0.3 * jax.random.normal(keys[2], (64,))
        return sf.Samples(z, {"treatment": x, "outcome": y})

    def draw(t: Any, key: Any) -> sf.Data:
        return sf.Data(*(samples(t, each) for each in jax.random.split(key)))

    def gap(t: Any, outer: Any) -> Any:
        beta = parameter(t, keys_of_path)
        best = beta if project is None else project(beta)  # with a projection Π has orthonormal rows
        error, least = (first_stage.T @ (each - beta) for each in (value(outer), best))
        return jnp.sum(error**2) - jnp.sum(least**2)

    keys_of_path = keys[2]
    problem = sf.Problem(
        lambda outer, v, x, y: (v - value(outer) @ y["treatment"]) ** 2,  # noqa: ARG005
        lambda outer, v, x, y: (v - y["outcome"]) ** 2,  # noqa: ARG005
    )
    start = jnp.zeros(len(strengths))
    start = {"u": start + 0.1, "v": start + 0.1} if factors else start
    return Case(draw, start, gap, problem, sf.Linear(identity, ridge=1e-3), project, units=units)


# Quadratics with a noisy gradient, and the sets that λ may lie in


def onto_ball(outer: Any) -> Any:
    return outer / jnp.maximum(1, jnp.linalg.norm(outer))


def onto_plane(outer: Any) -> Any:
    return outer - jnp.mean(outer) + 1 / outer.size


def onto_simplex(outer: Any) -> Any:
    with jax.numpy_dtype_promotion("standard"):
        return optax.projections.projection_simplex(outer)


def quadratic(seed: Any, *, project: Any) -> Case:
    """F_t(λ) = ½‖λ − b_t‖² with b_t on a circle of radius 0.8 round a point of norm 0.8; noise of 0.5 an entry."""
    center, first, second = 0.8 * frame(jax.random.key(seed), 3, 4)

    def goal(t: Any) -> Any:
        return goes_round(center, first, second, 300, t)

    def oracle(outer: Any, data: Any, key: Any) -> Any:
        del key
        return outer - goal(data[0]) + data[1]

    def gap(t: Any, outer: Any) -> Any:
        return (jnp.sum((outer - goal(t)) ** 2) - jnp.sum((project(goal(t)) - goal(t)) ** 2)) / 2

    def draw(t: Any, key: Any) -> Any:
        return t, 0.5 * jax.random.normal(key, (4,))

    return Case(draw, jnp.full(4, 0.25), gap, project=project, oracle=oracle)


# An inner relation that moves, while the answer stays


def flipping(t: Any) -> Any:
    return jnp.where((t // 10) % 2 == 0, 1.0, -1.0) * jnp.eye(3)


def turning(t: Any) -> Any:
    c, s = jnp.cos(0.1 * t), jnp.sin(0.1 * t)
    return jnp.eye(3).at[:2, :2].set(jnp.array([[c, -s], [s, c]]))


def relation(seed: Any, *, matrix: Any, noise: float) -> Case:
    """Inner targets M_t x, outer targets bᵀM_t x, and λᵀh(x) as the prediction: F_t(λ) = ‖λ − b‖² + const."""
    best = jax.random.normal(jax.random.key(seed), (3,))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x = jax.random.normal(keys[0], (2, 20, 3))
        inner = x[0] @ matrix(t).T + noise * jax.random.normal(keys[1], (20, 3))
        outer = x[1] @ matrix(t).T @ best + noise * jax.random.normal(keys[2], (20,))
        return sf.Data(sf.Samples(x[0], inner), sf.Samples(x[1], outer))

    problem = sf.Problem(
        lambda outer, v, x, y: jnp.sum((v - y) ** 2),  # noqa: ARG005
        lambda outer, v, x, y: (v @ outer - y) ** 2,  # noqa: ARG005
    )
    linear = sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-4)
    return Case(draw, jnp.zeros(3), lambda t, outer: jnp.sum((outer - best) ** 2), problem, linear)  # noqa: ARG005


# λ of other kinds


def ridge(seed: Any) -> Case:
    """λ are log-penalties of two groups of coefficients. Inner targets are those of coefficients that are c_{t,g} times
    too large, and so large should the penalty be: θ_g = 2 c_g a_g/(2 + e^{λ_g}), F_t = Σ_g ‖θ_g − a_g‖² + const."""
    truth = jax.random.normal(jax.random.key(seed), (2, 4)) / 2

    def excess(t: Any) -> Any:
        return 1 + jnp.exp(jnp.sin(2 * jnp.pi * (t / 600 + jnp.arange(2) / 4)))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = jax.random.normal(keys[0], (2, 32, 8)), 0.5 * jax.random.normal(keys[1], (2, 32))
        inner = x[0] @ (excess(t)[:, None] * truth).ravel() + noise[0]
        return sf.Data(sf.Samples(x[0], inner), sf.Samples(x[1], x[1] @ truth.ravel() + noise[1]))

    def gap(t: Any, outer: Any) -> Any:
        share = 2 * excess(t) / (2 + jnp.exp(outer)) - 1
        return jnp.sum(share**2 * jnp.sum(truth**2, axis=1))

    def square(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return (v - y) ** 2

    linear = sf.Linear(identity, ridge=lambda outer: jnp.repeat(jnp.exp(outer), 4))
    return Case(draw, jnp.zeros(2), gap, sf.Problem(square, square), linear)


def pytree(seed: Any) -> Case:
    """λ is a matrix M and a number s. Inner targets are M u + s with E[u | x] = x, outer targets A_t x + s_t:
    F_t(λ) = ‖M − A_t‖² + 3 (s − s_t)² + const."""
    center, first, second = frame(jax.random.key(seed), 3, 9).reshape(3, 3, 3)

    def goal(t: Any) -> Any:
        return {
            "matrix": goes_round(2 * center, first, second, 600, t),
            "offset": jnp.sin(2 * jnp.pi * t / 200),
        }

    def apply(outer: Any, x: Any) -> Any:
        return outer["matrix"] @ x + outer["offset"]

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = jax.random.normal(keys[0], (2, 32, 3)), 0.5 * jax.random.normal(keys[1], (2, 32, 3))
        outer = jax.vmap(partial(apply, goal(t)))(x[1]) + noise[1]
        return sf.Data(sf.Samples(x[0], x[0] + noise[0]), sf.Samples(x[1], outer))

    def gap(t: Any, outer: Any) -> Any:
        error = jax.tree.map(lambda one, other: jnp.sum((one - other) ** 2), outer, goal(t))
        return error["matrix"] + 3 * error["offset"]

    problem = sf.Problem(
        lambda outer, v, x, y: jnp.sum((v - apply(outer, y)) ** 2),  # noqa: ARG005
        lambda outer, v, x, y: jnp.sum((v - y) ** 2),  # noqa: ARG005
    )
    linear = sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-4, bias=True)
    return Case(draw, {"matrix": jnp.zeros((3, 3)), "offset": jnp.zeros(())}, gap, problem, linear)


def label_shift(seed: Any) -> Case:
    """Three Gaussian classes, alike frequent in the inner data and with shares π_t in the outer data. λ are log-weights
    of the classes in a logistic regression, which is then right for the shares softmax(λ): the gap is the mean of
    KL(posterior for π_t, posterior for softmax(λ)), over 1,000 points of each class."""
    means = 1.5 * frame(jax.random.key(seed), 3, 3)
    points = means[:, None] + jax.random.normal(jax.random.key(0), (3, 1000, 3))
    scores = points @ means.T - jnp.sum(means**2, axis=1) / 2

    def shares(t: Any) -> Any:
        return jax.nn.softmax(2 * jnp.cos(2 * jnp.pi * (t / 600 + jnp.arange(3) / 3)))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        kinds = jnp.arange(48) % 3, jax.random.categorical(keys[0], jnp.log(shares(t)), shape=(48,))
        noise = jax.random.normal(keys[1], (2, 48, 3))
        return sf.Data(*(sf.Samples(means[kind] + e, kind) for kind, e in zip(kinds, noise, strict=True)))

    def gap(t: Any, outer: Any) -> Any:
        true = jax.nn.log_softmax(scores + jnp.log(shares(t)))
        error = jnp.sum(jnp.exp(true) * (true - jax.nn.log_softmax(scores + outer)), axis=-1)
        return jnp.sum(shares(t) * jnp.mean(error, axis=1))

    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    problem = sf.Problem(
        lambda outer, v, x, y: 3 * jax.nn.softmax(outer)[y] * cross_entropy(v, y),  # noqa: ARG005
        lambda outer, v, x, y: cross_entropy(v, y),  # noqa: ARG005
    )
    linear = sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-3, bias=True, steps=5)
    return Case(draw, jnp.zeros(3), gap, problem, linear)


def expectile(seed: Any) -> Case:
    """Inner squares count τ = σ(λ) above the prediction and 1 − τ below it, so h is the mean plus the τ-expectile of
    the noise, N(0, 1). Outer targets lie s_t above the mean: F_t(λ) = (expectile − s_t)² + const."""
    slope = jax.random.normal(jax.random.key(seed), (3,))

    def shift(t: Any) -> Any:
        return 1.2 * jnp.sin(2 * jnp.pi * t / 600)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = jax.random.normal(keys[0], (2, 48, 3)), jax.random.normal(keys[1], (2, 48))
        return sf.Data(sf.Samples(x[0], x[0] @ slope + noise[0]), sf.Samples(x[1], x[1] @ slope + shift(t) + noise[1]))

    def share(e: Any) -> Any:
        """The τ whose expectile is e: E(e − Y)₊ / E|e − Y|."""
        below = e * jax.scipy.stats.norm.cdf(e) + jax.scipy.stats.norm.pdf(e)
        return below / (2 * below - e)

    def gap(t: Any, outer: Any) -> Any:
        def halve(_: int, ends: Any) -> Any:
            middle = (ends[0] + ends[1]) / 2
            is_low = share(middle) < jax.nn.sigmoid(outer)
            return jnp.where(is_low, middle, ends[0]), jnp.where(is_low, ends[1], middle)

        found, _ = jax.lax.fori_loop(0, 25, halve, (jnp.asarray(-4.0), jnp.asarray(4.0)))
        return (found - shift(t)) ** 2

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        tau = jax.nn.sigmoid(outer)
        return 2 * jnp.where(y > v, tau, 1 - tau) * (v - y) ** 2

    problem = sf.Problem(inner_loss, lambda outer, v, x, y: (v - y) ** 2)  # noqa: ARG005
    return Case(draw, jnp.zeros(()), gap, problem, sf.Linear(identity, ridge=1e-3, bias=True, steps=5))


def _as_they_are(outer: Any) -> Any:
    return outer


SCALES = jnp.array([100.0, 1.0, 0.01])
BALL = {"project": onto_ball, "strengths": (1.0,) * 4}

# name: what it is, rounds, and the function of the seed
PROBLEMS: dict[str, tuple[str, int, Callable[[Any], Case]]] = {
    "softmax": ("another of three sources is right every 150 rounds, weights by a softmax", 900,
                partial(sources, amounts=one_is_right)),
    "sigmoids": ("the same with sigmoids", 900, partial(sources, amounts=one_is_right, weights=jax.nn.sigmoid)),
    "simplex": ("the same with weights on the simplex", 900,
                partial(sources, amounts=one_is_right, weights=_as_they_are, start=1 / 3, project=onto_simplex)),
    "student": ("all noise with Student's t distribution, 1.5 degrees of freedom", 600,
                partial(sources, inner_noise=student, outer_noise=student)),
    "cauchy": ("outer noise with the Cauchy distribution", 600, partial(sources, outer_noise=cauchy)),
    "outliers": ("one round in fifty has outer targets 100 times too large", 600,
                 partial(sources, factor=lambda t: jnp.where(t % 50 == 49, 100.0, 1.0))),
    "far": ("a softmax of λ − 100, from λ = 100", 600,
            partial(sources, weights=lambda outer: jax.nn.softmax(outer - 100), start=100.0)),
    "scales": ("a softmax of (100 λ₁, λ₂, λ₃/100)", 600,
               partial(sources, weights=lambda outer: jax.nn.softmax(SCALES * outer))),
    "narrow": ("a softmax of 1000 λ", 600,
               partial(sources, weights=lambda outer: jax.nn.softmax(1000 * outer), units=0.001)),
    "ball": ("an instrument, λ in a ball", 600, partial(instrument, **BALL)),
    "quadratic-ball": ("a noisy quadratic on a ball", 600, partial(quadratic, project=onto_ball)),
    "quadratic-simplex": ("a noisy quadratic on the simplex", 600, partial(quadratic, project=onto_simplex)),
    "quadratic-plane": ("a noisy quadratic on a plane", 600, partial(quadratic, project=onto_plane)),
    "flips": ("an inner relation whose sign flips every ten rounds", 600,
              partial(relation, matrix=flipping, noise=0.5)),
    "turns": ("an inner relation that turns by 0.1 radians a round, noise 0.05", 600,
              partial(relation, matrix=turning, noise=0.05)),
    "ridge": ("log-penalties of two groups of coefficients", 600, ridge),
    "pytree": ("a matrix, and a number that moves three times as fast", 600, pytree),
    "label-shift": ("class weights of a logistic regression, shares move", 600, label_shift),
    "expectile": ("the level of an expectile regression", 600, expectile),
    "one-moves": ("an instrument, one of four coordinates moves, in 40 rounds", 600,
                  partial(instrument, parameter=one_moves)),
    "calm": ("an instrument that stays for 600 rounds and jumps", 900, partial(instrument, parameter=calm)),
    "too-fast": ("an instrument that goes round in twelve rounds", 600,
                 partial(instrument, parameter=partial(circling, period=12.0))),
    "large": ("an instrument, λ in units of 1/1000", 600, partial(instrument, units=1000.0)),
    "small": ("an instrument, λ in units of 1000", 600, partial(instrument, units=0.001)),
    "factors": ("an instrument, λ = uv from u = v = 0.1", 600, partial(instrument, factors=True)),
    "bursts": ("noise thirty times as large in fifty of 200 rounds", 600,
               partial(sources, inner_noise=bursts, outer_noise=bursts)),
    "ragged": ("rounds of 2 to 32 samples", 600,
               partial(sources, counted=lambda key: jax.random.randint(key, (), 2, 33))),
}  # fmt: skip
