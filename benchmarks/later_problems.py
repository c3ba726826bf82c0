"""Drifting problems for a later evaluation, written by someone who had not seen how any method does on the others.

They differ in the size of λ (1 to 100), its constraints, the inner loss, the noise, the batch and the drift; one has
none. `best` is a smallest point of F_t, from which the gaps are taken.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import smoothfbo as sf
from benchmarks.beyond_problems import Case, identity, onto_simplex
from benchmarks.unseen_problems import sine, square, two


def gain(seed: Any) -> Case:
    """A filter moves the last estimate p by λ of the way to a new reading o: h = p + λ (o − p), λ in [0, 1]. Outer
    targets are what it was, z. p − z and o − z have Laplace distributions with the variances s² and r²: F_t(λ) = (s² +
    r²) (λ − s²/(s² + r²))² + const. Nothing moves; a round has four samples of each kind."""
    s, r = jnp.exp(jax.random.uniform(jax.random.key(seed), (2,), minval=-0.7, maxval=0.7))
    right = s**2 / (s**2 + r**2)

    def draw(t: Any, key: Any) -> sf.Data:
        del t
        keys = jax.random.split(key, 2)
        errors = jax.random.laplace(keys[1], (2, 4, 3)) / jnp.sqrt(2.0)
        z = 2 * jax.random.normal(keys[0], (2, 4, 1))
        seen = z + errors * jnp.stack([s, r, 0.5 * jnp.ones_like(s)])
        x, later = seen[..., :2], seen[..., 2]
        return sf.Data(*map(sf.Samples, x, later))

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del y
        return (v - x[0] - outer * (x[1] - x[0])) ** 2

    return Case(
        draw, jnp.ones(()), lambda t, outer: (s**2 + r**2) * (outer - right) ** 2,  # noqa: ARG005
        sf.Problem(inner_loss, square), sf.Linear(identity, ridge=1e-5), lambda outer: jnp.clip(outer, 0, 1),
        best=lambda t: right,  # noqa: ARG005
    )  # fmt: skip


def stacking(seed: Any) -> Case:
    """A hundred forecasters, the k-th with e_kᵀx and a little noise, are pooled with weights λ on the simplex: h =
    (Σ_k λ_k e_k)ᵀx. Outer targets are f_tᵀx + noise: F_t(λ) = ‖Σ_k λ_k e_k − f_t‖² + const. f_t goes straight from one
    forecaster to another one, for 80 rounds, and on, and never comes back: all but two weights are best at 0."""
    keys = jax.random.split(jax.random.key(seed), 3)
    experts = jax.random.normal(keys[0], (12,)) / 3 + 0.5 * jax.random.normal(keys[1], (100, 12))
    order = jax.random.permutation(keys[2], 100)

    def best(t: Any) -> Any:
        share, turn = (t % 80) / 80, t // 80
        return jnp.zeros(100).at[order[turn]].add(1 - share).at[order[turn + 1]].add(share)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x = two(keys[0], 40, 12)
        told = x[0] @ experts.T + 0.2 * jax.random.normal(keys[1], (40, 100))
        seen = x[1] @ (best(t) @ experts) + 0.5 * jax.random.normal(keys[2], (40,))
        return sf.Data(sf.Samples(x[0], told), sf.Samples(x[1], seen))

    problem = sf.Problem(lambda outer, v, x, y: (v - outer @ y) ** 2, square)  # noqa: ARG005
    return Case(
        draw, jnp.full(100, 0.01), lambda t, outer: jnp.sum(((outer - best(t)) @ experts) ** 2), problem,
        sf.Linear(identity, ridge=1e-4), onto_simplex, best=best,
    )  # fmt: skip


def case_mix(seed: Any) -> Case:
    """Three diagnoses of patients of four kinds. Inner data come from four hospitals alike, whose patients of a kind
    have the chances p_{g,k}, with the weights λ in [0.02, 4]; outer ones from all four with the shares π_t. h is right
    for the chances Σ_g λ_g p_{g,k}/Σ_g λ_g, and the gap is the mean over k of KL to them from those with π_t. π_t jumps
    to anywhere with the chance 1/140 in a round."""
    keys = jax.random.split(jax.random.key(seed), 3)
    chances = jax.nn.softmax(1.2 * jax.random.normal(keys[0], (4, 4, 3)))
    jumps = jax.random.bernoulli(keys[1], 1 / 140, (700,))
    shares = 0.02 + 0.92 * jax.random.dirichlet(keys[2], jnp.ones(4), (700,))
    last = jax.lax.cummax(jnp.where(jumps, jnp.arange(700), 0))

    def mixed(weights: Any) -> Any:
        """Log-chances of all kinds."""
        return jnp.log(jnp.tensordot(weights / jnp.sum(weights), chances, 1))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        kind = jnp.arange(160) % 4
        here = jax.random.randint(keys[0], (160,), 0, 4)
        there = jax.random.categorical(keys[1], jnp.log(shares[last[t]]), shape=(160,))
        where = jnp.stack([here, there])
        found = jax.random.categorical(keys[2], jnp.log(chances[where, kind]))
        return sf.Data(*(sf.Samples(jnp.eye(4)[kind], {"found": found[i], "where": where[i]}) for i in range(2)))

    def gap(t: Any, outer: Any) -> Any:
        true = mixed(shares[last[t]])
        return jnp.mean(jnp.sum(jnp.exp(true) * (true - mixed(outer)), axis=1))

    def outer_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return optax.softmax_cross_entropy_with_integer_labels(v, y["found"])

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        return outer[y["where"]] * outer_loss(outer, v, x, y)

    def best(t: Any) -> Any:
        now = shares[last[t]]
        return 3 * now / jnp.max(now)

    return Case(
        draw, jnp.ones(4), gap, sf.Problem(inner_loss, outer_loss),
        sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-4, steps=5), lambda outer: jnp.clip(outer, 0.02, 4),
        best=best,
    )  # fmt: skip


def discount(seed: Any) -> Case:
    """Two values are regressed on x, s Σ_j γ^j r_j of the rewards r_0 … r_5 after x, whose means a_jᵀx have orthonormal
    a_j. λ are γ in [0, 0.98] and the scales s of both; outer targets are values with γ_t and s_t. F_t(λ) is the sum of
    (s γ^j − s_t γ_t^j)², and const. Hardly any noise; γ_t swings faster and faster and s_t grows. The start is far."""
    keys = jax.random.split(jax.random.key(seed), 2)
    normal, place = jax.random.normal(keys[0], (2, 6, 6)), jax.random.uniform(keys[1], (2,))
    means = jnp.stack([jnp.linalg.qr(each)[0] for each in normal])

    def discounts(outer: Any) -> Any:
        return jnp.stack([outer["scale"] * outer["discount"] ** j for j in range(6)], axis=-1)

    def truth(t: Any) -> Any:
        return {"discount": 0.6 + 0.3 * sine(3 * (t / 500) ** 2, 1.0, place), "scale": (1 + t / 500) * jnp.ones(2)}

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x = two(keys[0], 16, 6)
        rewards = jnp.einsum("sni,vji->snvj", x, means)
        inner = rewards[0] + 0.01 * jax.random.normal(keys[1], (16, 2, 6))
        values = jnp.sum(discounts(truth(t)) * rewards[1], axis=-1) + 0.01 * jax.random.normal(keys[2], (16, 2))
        return sf.Data(sf.Samples(x[0], inner), sf.Samples(x[1], values))

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return jnp.sum((v - jnp.sum(discounts(outer) * y, axis=-1)) ** 2)

    return Case(
        draw, {"discount": jnp.full(2, 0.05), "scale": 3 * jnp.ones(2)},
        lambda t, outer: jnp.sum((discounts(outer) - discounts(truth(t))) ** 2), sf.Problem(inner_loss, square),
        sf.Linear(identity, prediction=jnp.zeros(2), ridge=1e-6),
        lambda outer: {**outer, "discount": jnp.clip(outer["discount"], 0, 0.98)}, best=truth,
    )  # fmt: skip


QUANTILES = np.exp([NormalDist().inv_cdf((i + 0.5) / 64) for i in range(64)])
SKEWED = QUANTILES - QUANTILES.mean()


def robust(seed: Any) -> Case:
    """Costs at three plants, with two machines each, are fᵀx + c + σ ε. ε is one of 64 quantiles of a lognormal
    distribution, less their mean, and σ is the machine's. λ is the log δ at each plant of the inner loss δ² (√(1 +
    (r/δ)²) − 1): h is fᵀx + c + m(δ), where the mean of its derivative is 0, so that m goes from the median to the
    mean. Outer targets lie at m(δ_t), with noise of Student's t, 3 degrees: F_t(λ) is the mean over machines of (m(δ) −
    m(δ_t))², and const. log δ_t is a random walk with a pull."""
    keys = jax.random.split(jax.random.key(seed), 4)
    slopes, costs = jax.random.normal(keys[0], (2,)), jax.random.normal(keys[1], (6,))
    moves = 0.15 * jax.random.normal(keys[2], (600, 3))
    begin = jax.random.uniform(keys[3], (3,), minval=-1, maxval=1)
    _, walk = jax.lax.scan(lambda now, move: (0.99 * now + move, now), begin, moves)
    plant, sigmas = jnp.arange(6) // 2, jnp.array([0.7, 1.2, 1.0, 1.5, 1.2, 2.0])
    atoms = sigmas[:, None] * jnp.asarray(SKEWED, sigmas.dtype)

    def shift(outer: Any) -> Any:
        """m of every machine, by halving."""
        delta = jnp.exp(outer)[plant][:, None]

        def halve(_: int, ends: Any) -> Any:
            middle = (ends[0] + ends[1]) / 2
            residual = atoms - middle[:, None]
            is_low = jnp.sum(residual / jnp.sqrt(1 + (residual / delta) ** 2), axis=1) > 0
            return jnp.where(is_low, middle, ends[0]), jnp.where(is_low, ends[1], middle)

        steps = 24 if atoms.dtype == jnp.float32 else 48
        return sum(jax.lax.fori_loop(0, steps, halve, (-2 * sigmas, 2 * sigmas))) / 2

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        machine = jnp.arange(90) % 6
        numbers, known = two(keys[0], 90, 2), jnp.broadcast_to(jnp.eye(6)[machine], (2, 90, 6))
        right = numbers @ slopes + costs[machine]
        inner = right[0] + jax.random.choice(keys[1], atoms, (90,), axis=1)[machine, jnp.arange(90)]
        outer = right[1] + shift(walk[t])[machine] + 0.4 * jax.random.t(keys[2], 3.0, (90,))
        x = jnp.concatenate([numbers, known], axis=2)
        return sf.Data(*(sf.Samples(x[i], {"cost": y, "plant": plant[machine]}) for i, y in enumerate((inner, outer))))

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        delta = jnp.exp(outer[y["plant"]])
        return delta**2 * (jnp.sqrt(1 + ((v - y["cost"]) / delta) ** 2) - 1)

    problem = sf.Problem(inner_loss, lambda outer, v, x, y: (v - y["cost"]) ** 2)  # noqa: ARG005
    return Case(
        draw, jnp.zeros(3), lambda t, outer: jnp.mean((shift(outer) - shift(walk[t])) ** 2), problem,
        sf.Linear(identity, ridge=1e-6, steps=5), best=lambda t: walk[t],
    )  # fmt: skip


HOURS = (6.0, 12.0, 24.0, 48.0, 96.0)


def nowcast(seed: Any) -> Case:
    """Cases of three kinds with the rates e^{s_k}, of which after a hours the share 1 − e^{−r_g a} is reported, at r_g
    in two regions with the shares π_{k,g}. λ are the r in the means of an inner Poisson regression, at least 0.003 per
    hour; outer counts are complete. With the mean c(r) of the shares h_k = s_k + log(Σ_g π_{k,g} c(r_{t,g})/Σ_g π_{k,g}
    c(λ_g)), and the gap is the mean over k of e^{h_k} − e^{s_k} − e^{s_k} (h_k − s_k). Counts have twice the variance
    of Poisson's. One region becomes slower and slower and the other one faster."""
    scores = jax.random.uniform(jax.random.key(seed), (3,), minval=0.5, maxval=2.0)
    shares, hours = jnp.array([[0.85, 0.15], [0.5, 0.5], [0.1, 0.9]]), jnp.array(HOURS)

    def best(t: Any) -> Any:
        return jnp.array([0.08, 0.02]) * jnp.exp(jnp.array([-1.6, 1.1]) * t / 400)

    def reported(rate: Any) -> Any:
        return jnp.mean(-jnp.expm1(-rate[:, None] * hours), axis=1)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 4)
        kind = jnp.arange(480) % 3
        where = jax.random.categorical(keys[0], jnp.log(shares)[kind])
        waited = hours[jax.random.randint(keys[1], (480,), 0, 5)]
        means = jnp.exp(scores[kind]) * jnp.stack([-jnp.expm1(-best(t)[where] * waited), jnp.ones(480)])
        counts = jax.random.poisson(keys[2], jax.random.gamma(keys[3], means)).astype(means.dtype)
        more = {"where": where, "hours": waited}
        return sf.Data(*(sf.Samples(jnp.eye(3)[kind], {"count": each, **more}) for each in counts))

    def gap(t: Any, outer: Any) -> Any:
        over = jnp.log(shares @ reported(best(t))) - jnp.log(shares @ reported(outer))
        return jnp.mean(jnp.exp(scores) * (jnp.expm1(over) - over))

    def outer_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return jnp.exp(v) - y["count"] * v

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return -jnp.expm1(-outer[y["where"]] * y["hours"]) * jnp.exp(v) - y["count"] * v

    return Case(
        draw, jnp.full(2, 0.15), gap, sf.Problem(inner_loss, outer_loss), sf.Linear(identity, ridge=1e-4, steps=5),
        lambda outer: jnp.maximum(outer, 0.003), units=0.03, best=best,
    )  # fmt: skip


def memory(seed: Any) -> Case:
    """Who buys again? Customers of two segments, two kinds in each, have the chances p_{k,a} a quarters ago, a = 0 … 9.
    A logistic regression weighs the past with 2^{−a/T}; λ are log T of the segments, and outer labels have the chances
    of a past that is weighed with T_t: the gap is the mean over k of KL(right, learnt). log T_t has a slow season, a
    random walk and two jumps. The start is right."""
    keys = jax.random.split(jax.random.key(seed), 6)
    levels, trends = 0.4 * jax.random.normal(keys[0], (4,)), 1.6 * jax.random.rademacher(keys[1], (4,))
    chances = jax.nn.sigmoid(levels[:, None] + trends[:, None] * jnp.linspace(1, -1, 10))
    place, times = jax.random.uniform(keys[2], (2,)), jax.random.randint(keys[3], (2,), 100, 1400)
    moves, sizes = 0.015 * jax.random.normal(keys[4], (1500, 2)), 0.7 * jax.random.normal(keys[5], (2, 2))
    _, walk = jax.lax.scan(lambda now, move: (0.998 * now + move, now), jnp.zeros(2), moves)

    def best(t: Any) -> Any:
        jumped = jnp.sum(jnp.where(t >= times[:, None], sizes, 0.0), axis=0)
        return jnp.clip(1.1 + 0.5 * sine(t, 700, place) + walk[t] + jumped, 0, 2.5)

    def learnt(outer: Any) -> Any:
        weights = jnp.repeat(jnp.exp2(-jnp.arange(10) / jnp.exp(outer)[:, None]), 2, axis=0)
        return jnp.sum(weights * chances, axis=1) / jnp.sum(weights, axis=1)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        kind, ago = jnp.arange(200) % 4, jax.random.randint(keys[0], (200,), 0, 10)
        labels = jax.random.bernoulli(keys[1], jnp.stack([chances[kind, ago], learnt(best(t))[kind]]))
        more = {"ago": ago, "segment": kind // 2}
        x = jnp.eye(4)[kind]
        return sf.Data(*(sf.Samples(x, {"label": each.astype(x.dtype), **more}) for each in labels))

    def gap(t: Any, outer: Any) -> Any:
        right, found = learnt(best(t)), learnt(outer)
        return jnp.mean(right * jnp.log(right / found) + (1 - right) * jnp.log((1 - right) / (1 - found)))

    def outer_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return optax.sigmoid_binary_cross_entropy(v, y["label"])

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        return jnp.exp2(-y["ago"] / jnp.exp(outer[y["segment"]])) * outer_loss(outer, v, x, y)

    linear = sf.Linear(identity, ridge=2e-5, steps=5)
    return Case(draw, best(0), gap, sf.Problem(inner_loss, outer_loss), linear, best=best)


def pooling(seed: Any) -> Case:
    """Means of 24 districts are pulled to what the country's model says, d_k away, with the strengths λ_k in [0, 4]:
    h_k = own mean + s d_k, s = λ_k/(1 + λ_k). In the outer data the share r_{t,k} of d_k is right, which is below 0 or
    above 0.8 seven tenths of the time: F_t(λ) is the mean over k of d_k² (s − r_{t,k})², and const. d_k is 0.3 to 3,
    noise is exponential and three times as large in some districts as in others. Seasons of 150 to 450 rounds."""
    keys = jax.random.split(jax.random.key(seed), 5)
    means, places = jax.random.normal(keys[0], (24,)), jax.random.uniform(keys[1], (24,))
    away = jax.random.permutation(keys[2], jnp.geomspace(0.3, 3, 24)) * jax.random.rademacher(keys[3], (24,))
    noises, periods = jnp.tile(jnp.array([0.5, 1.5]), 12), jax.random.uniform(keys[4], (24,), minval=150, maxval=450)

    def right(t: Any) -> Any:
        return 0.4 + 0.9 * sine(t, periods, places)

    def best(t: Any) -> Any:
        share = jnp.clip(right(t), 0, 0.8)
        return share / (1 - share)

    def draw(t: Any, key: Any) -> sf.Data:
        kind = jnp.arange(96) % 24
        noise = noises[kind] * (jax.random.exponential(key, (2, 96)) - 1)
        targets = noise + jnp.stack([means, means + right(t) * away])[:, kind]
        model = (means + away)[kind]
        return sf.Data(*(sf.Samples(jnp.eye(24)[kind], {"target": y, "model": model, "kind": kind}) for y in targets))

    def gap(t: Any, outer: Any) -> Any:
        least = (jnp.clip(right(t), 0, 0.8) - right(t)) ** 2
        return jnp.mean(away**2 * ((outer / (1 + outer) - right(t)) ** 2 - least))

    def outer_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return (v - y["target"]) ** 2

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        return outer_loss(outer, v, x, y) + outer[y["kind"]] * (v - y["model"]) ** 2

    return Case(
        draw, jnp.ones(24), gap, sf.Problem(inner_loss, outer_loss), sf.Linear(identity, ridge=1e-5),
        lambda outer: jnp.clip(outer, 0, 4), best=best,
    )  # fmt: skip


LATER: dict[str, tuple[str, int, Callable[[Any], Case]]] = {
    "gain": ("the gain of a filter, four samples a round, no drift", 1000, gain),
    "stacking": ("weights of a hundred forecasters on the simplex, one hands over to the next", 600, stacking),
    "case-mix": ("weights of four hospitals, three classes, jumps at random times", 700, case_mix),
    "discount": ("two discounts and scales, noise 0.01, swings faster and faster", 500, discount),
    "robust": ("log-scales of a robust loss under skewed noise, a random walk", 600, robust),
    "nowcast": ("two rates of reporting in a Poisson regression, steady drift", 400, nowcast),
    "memory": ("two log-half-lives of a logistic regression; season, walk and jumps", 1500, memory),
    "pooling": ("strengths of pooling of 24 districts, on the border seven tenths of the time", 600, pooling),
}
