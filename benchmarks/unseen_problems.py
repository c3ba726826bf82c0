"""Drifting problems beside those of `beyond_problems`, on which nothing about the recommended method was chosen.

Each has another inner task, another kind of λ and another kind of drift.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import smoothfbo as sf
from benchmarks.beyond_problems import Case, frame, goes_round, identity


def square(outer: Any, v: Any, x: Any, y: Any) -> Any:
    del outer, x
    return jnp.sum((v - y) ** 2)


def two(key: Any, size: int, features: int) -> Any:
    """Standard Gaussian inputs of inner and outer samples."""
    return jax.random.normal(key, (2, size, features))


def sine(t: Any, period: float, phase: Any = 0.0) -> Any:
    return jnp.sin(2 * jnp.pi * (t / period + phase))


def annotators(seed: Any) -> Case:
    """Items of four kinds, in which 1 has the chances σ(s_k). Outer labels are right, inner ones come from annotators,
    each of whom has seen other kinds (the shares π_{k,g}) and adds b_{t,g} to the score. λ_g is added to the prediction
    for annotator g: h_k is where Σ_g π_{k,g} (σ(h_k + λ_g) − σ(s_k + b_{t,g})) = 0, and the gap is the mean of
    KL(σ(s_k), σ(h_k)). b_t is a random walk, with a slight pull to 0."""
    keys = jax.random.split(jax.random.key(seed), 3)
    scores, first = jax.random.uniform(keys[0], (4,), minval=-1.2, maxval=1.2), jax.random.normal(keys[1], (3,))
    shares = jnp.array([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.2, 0.1, 0.7], [0.3, 0.4, 0.3]])
    moves = 0.12 * jax.random.normal(keys[2], (600, 3))
    _, offsets = jax.lax.scan(lambda now, move: (0.995 * now + move, now), 1.2 * first, moves)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        kind = jnp.arange(96) % 4
        who = jax.random.categorical(keys[0], jnp.log(shares)[kind])
        chances = jax.nn.sigmoid(scores[kind] + jnp.stack([offsets[t][who], jnp.zeros(96)]))
        labels = jax.random.bernoulli(keys[1], chances).astype(chances.dtype)
        x = jnp.eye(4)[kind]
        return sf.Data(*(sf.Samples(x, {"label": each, "who": who}) for each in labels))

    def gap(t: Any, outer: Any) -> Any:
        wanted = jnp.sum(shares * jax.nn.sigmoid(scores[:, None] + offsets[t]), axis=1)

        def halve(_: int, ends: Any) -> Any:
            middle = (ends[0] + ends[1]) / 2
            is_low = jnp.sum(shares * jax.nn.sigmoid(middle[:, None] + outer), axis=1) < wanted
            return jnp.where(is_low, middle, ends[0]), jnp.where(is_low, ends[1], middle)

        found, _ = jax.lax.fori_loop(0, 32, halve, (jnp.full(4, -20.0), jnp.full(4, 20.0)))
        true, log = jax.nn.sigmoid(scores), jax.nn.log_sigmoid
        one, none = log(scores) - log(found), log(-scores) - log(-found)
        return jnp.mean(true * one + (1 - true) * none)

    cross_entropy = optax.sigmoid_binary_cross_entropy
    problem = sf.Problem(
        lambda outer, v, x, y: cross_entropy(v + outer[y["who"]], y["label"]),  # noqa: ARG005
        lambda outer, v, x, y: cross_entropy(v, y["label"]),  # noqa: ARG005
    )
    return Case(draw, jnp.zeros(3), gap, problem, sf.Linear(identity, ridge=3e-4, steps=5))


def covariate_shift(seed: Any) -> Case:
    """A line is fitted to aᵀx + ‖x‖²/2, with inner x ~ N(0, I), outer x ~ N(m_t, I). Inner weights
    exp(λᵀx − ‖λ‖²/2) make N(λ, I) of the inner inputs: F_t(λ) = d² + d⁴/4 + const, d = ‖λ − m_t‖. The noise
    has a season."""
    keys = jax.random.split(jax.random.key(seed), 2)
    slope, (center, first, second) = jax.random.normal(keys[0], (3,)), frame(keys[1], 3, 3)

    def shift(t: Any) -> Any:
        return goes_round(0.5 * center, 0.6 * first, 0.6 * second, 400, t)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x = two(keys[0], 64, 3) + jnp.stack([jnp.zeros(3), shift(t)])[:, None]
        noise = 0.6 * 10 ** (sine(t, 90) / 2) * jax.random.normal(keys[1], (2, 64))
        return sf.Data(*map(sf.Samples, x, x @ slope + jnp.sum(x**2, axis=-1) / 2 + noise))

    def gap(t: Any, outer: Any) -> Any:
        distance = jnp.sum((outer - shift(t)) ** 2)
        return distance + distance**2 / 4

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        return jnp.exp(outer @ x - jnp.sum(outer**2) / 2) * (v - y) ** 2

    return Case(draw, jnp.zeros(3), gap, sf.Problem(inner_loss, square), sf.Linear(identity, ridge=1e-4, bias=True))


def label_noise(seed: Any) -> Case:
    """P(1) = p(x) = 1/2 + bᵀx, x uniform. Inner labels 0 are flipped at the rate r_{t,0} and labels 1 at r_{t,1}; λ in
    [0, 0.4]² are the rates that they are corrected for. Each rate is 0 half of the time.
    h(x) = (p̃(x) − λ₀)/(1 − λ₀ − λ₁) with p̃ = r₀ + (1 − r₀ − r₁) p, and F_t(λ) = E (h − p)² + const."""
    keys = jax.random.split(jax.random.key(seed), 2)
    slope = jnp.array([0.36, 0.08, 0.04]) * jax.random.rademacher(keys[0], (3,))
    phases = jax.random.uniform(keys[1], (2,))

    def rates(t: Any) -> Any:
        return jnp.maximum(0, 0.3 * sine(t, 300, phases))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x = jax.random.uniform(keys[0], (2, 96, 3), minval=-1, maxval=1)
        labels = jax.random.bernoulli(keys[1], 0.5 + x @ slope)
        flipped = jax.random.bernoulli(keys[2], jnp.where(labels[0], rates(t)[1], rates(t)[0]))
        return sf.Data(*map(sf.Samples, x, jnp.stack([labels[0] ^ flipped, labels[1]]).astype(x.dtype)))

    def gap(t: Any, outer: Any) -> Any:
        kept = 1 - jnp.sum(outer)
        constant, tilt = (rates(t)[0] - outer[0]) / kept, (1 - jnp.sum(rates(t))) / kept - 1
        return (constant + tilt / 2) ** 2 + tilt**2 * jnp.sum(slope**2) / 3

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return (v - (y - outer[0]) / (1 - jnp.sum(outer))) ** 2

    linear = sf.Linear(identity, ridge=1e-4, bias=True)
    return Case(
        draw, jnp.full(2, 0.1), gap, sf.Problem(inner_loss, square), linear, lambda rate: jnp.clip(rate, 0, 0.4)
    )


def policy(seed: Any) -> Case:
    """Five actions, played with the chances w = softmax(λ): h(x) is the mean cost under w, and the outer loss is
    h(x) + 0.3 Σ w log w, linear in h. With the mean costs c_t of the outer x ~ N(m, I) the gap is
    0.3 KL(w, softmax(−c_t/0.3)). Rounds have 4 to 48 inner samples, and half of the outer ones are often missing."""
    keys = jax.random.split(jax.random.key(seed), 3)
    slopes, mean = jax.random.normal(keys[0], (5, 2)) / 2, frame(keys[1], 1, 2)[0]
    place = jax.random.uniform(keys[2])

    def levels(t: Any) -> Any:
        return 0.5 * sine(t, 500, place + jnp.arange(5) / 5)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 4)
        x = two(keys[0], 48, 2)
        costs = levels(t) + x[0] @ slopes.T + 0.5 * jax.random.normal(keys[1], (48, 5))
        number = jax.random.randint(keys[2], (), 4, 49)
        kept = jnp.where(jax.random.bernoulli(keys[3]), 24, 48)
        inner, outer = (jnp.arange(48) < each for each in (number, kept))
        unused = {"cost": jnp.zeros_like(costs)}
        return sf.Data(sf.Samples(x[0], {"cost": costs}, inner), sf.Samples(x[1] + mean, unused, outer))

    def gap(t: Any, outer: Any) -> Any:
        log, best = jax.nn.log_softmax(outer), jax.nn.log_softmax(-(levels(t) + slopes @ mean) / 0.3)
        return 0.3 * jnp.sum(jnp.exp(log) * (log - best))

    problem = sf.Problem(
        lambda outer, v, x, y: (v - jax.nn.softmax(outer) @ y["cost"]) ** 2,  # noqa: ARG005
        lambda outer, v, x, y: v + 0.3 * jnp.sum(jax.nn.softmax(outer) * jax.nn.log_softmax(outer)),  # noqa: ARG005
    )
    return Case(draw, jnp.zeros(5), gap, problem, sf.Linear(identity, ridge=1e-4, bias=True))


def effects(seed: Any) -> Case:
    """y = fᵀx + b_{t,g} + noise in forty groups, some ten times as frequent as others in the inner data: shares q_g; in
    the outer data all are alike. The prediction is h(x) + λ_g; h = fᵀx + q·(b_t − λ) and F_t(λ) is the mean over g of
    (δ_g − q·δ)² + const, δ = λ − b_t. Four of the b_g jump, each at five random times."""
    keys = jax.random.split(jax.random.key(seed), 4)
    slope, fixed = jax.random.normal(keys[0], (3,)), jax.random.normal(keys[1], (40,))
    times, levels = jax.random.randint(keys[2], (4, 5), 0, 600), 1.5 * jax.random.normal(keys[3], (4, 6))
    shares = 1 / (1 + jnp.arange(40) / 4)
    shares = shares / jnp.sum(shares)

    def offsets(t: Any) -> Any:
        return fixed.at[::10].set(levels[jnp.arange(4), jnp.sum(times <= t, axis=1)])

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x, noise = two(keys[0], 80, 3), 0.3 * jax.random.normal(keys[1], (2, 80))
        group = jnp.stack([jax.random.categorical(keys[2], jnp.log(shares), shape=(80,)), jnp.arange(80) % 40])
        targets = x @ slope + offsets(t)[group] + noise
        return sf.Data(*(sf.Samples(x[i], {"target": targets[i], "group": group[i]}) for i in range(2)))

    def gap(t: Any, outer: Any) -> Any:
        error = outer - offsets(t)
        return jnp.mean((error - shares @ error) ** 2)

    def loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return (v + outer[y["group"]] - y["target"]) ** 2

    return Case(draw, jnp.zeros(40), gap, sf.Problem(loss, loss), sf.Linear(identity, ridge=1e-4, bias=True))


def relevance(seed: Any) -> Case:
    """Feature j, N(0, s_j²), is scaled by e^{λ_j} under a ridge of 1: a ridge of e^{−2λ_j} without the scale. In the
    outer data only the share r_{t,j} of its coefficient c_j is left: θ_j = 2s_j²c_j/(2s_j² + e^{−2λ_j}), and
    F_t(λ) = Σ_j s_j² (θ_j − r_{t,j} c_j)² + const."""
    keys = jax.random.split(jax.random.key(seed), 2)
    scales, phases = jnp.array([0.5, 0.7, 1.0, 1.0, 1.4, 2.0]), jax.random.uniform(keys[0], (6,))
    coefficients = jax.random.rademacher(keys[1], (6,)) / scales

    def shares(t: Any) -> Any:
        return jax.nn.sigmoid(3 * sine(t, 400, phases))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = scales * two(keys[0], 48, 6), 0.5 * jax.random.normal(keys[1], (2, 48))
        return sf.Data(*map(sf.Samples, x, jnp.stack([x[0] @ coefficients, x[1] @ (shares(t) * coefficients)]) + noise))

    def gap(t: Any, outer: Any) -> Any:
        left = 1 / (1 + jnp.exp(-2 * outer) / (2 * scales**2))
        return jnp.sum((scales * coefficients * (left - shares(t))) ** 2)

    linear = sf.Linear(identity, ridge=lambda outer: jnp.exp(-2 * outer))
    return Case(draw, jnp.zeros(6), gap, sf.Problem(square, square), linear)


def sensors(seed: Any) -> Case:
    """Two sensors in units a factor of ten apart show (T_k − o_{t,k})/g_{t,k} + noise. λ are their gains and offsets, h
    is the mean of the corrected reading, and the outer targets are T_k ~ N(3, 4) themselves. The sensors age for 300
    rounds, and then no more."""
    keys = jax.random.split(jax.random.key(seed), 2)
    slopes, units = 2 * frame(keys[0], 2, 4), jnp.array([0.2, 2.0])
    ageing = jax.random.rademacher(keys[1], (2, 2))

    def truth(t: Any) -> Any:
        aged = jnp.minimum(t / 300, 1.0) * ageing
        return {"gain": units * jnp.exp(0.5 * aged[0]), "offset": 2 * aged[1]}

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = two(keys[0], 32, 4), jax.random.normal(keys[1], (2, 32, 2))
        right, now = 3 + x @ slopes.T, truth(t)
        readings = (right[0] - now["offset"] + 0.5 * noise[0]) / now["gain"]
        return sf.Data(sf.Samples(x[0], readings), sf.Samples(x[1], right[1] + 0.5 * noise[1]))

    def gap(t: Any, outer: Any) -> Any:
        ratio = outer["gain"] / truth(t)["gain"]
        error = 3 * (ratio - 1) + outer["offset"] - ratio * truth(t)["offset"]
        return jnp.sum(error**2 + 4 * (ratio - 1) ** 2)

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return jnp.sum((v - outer["gain"] * y - outer["offset"]) ** 2)

    linear = sf.Linear(identity, prediction=jnp.zeros(2), ridge=1e-4, bias=True)
    return Case(draw, {"gain": units, "offset": jnp.zeros(2)}, gap, sf.Problem(inner_loss, square), linear)


def valley(seed: Any) -> Case:
    """F_t(λ) = ½ Σ_k d_k (u_{t,k}·(λ − b_t))², with d from 1 to 30 and axes u_t that turn once in 800 rounds: those of
    the smallest and the largest d change places. The noise of the gradient is larger where the curvature is."""
    keys = jax.random.split(jax.random.key(seed), 2)
    axes, (center, first, second), curvatures = frame(keys[0], 6, 6), frame(keys[1], 3, 6), 30 ** jnp.linspace(0, 1, 6)

    def turned(t: Any) -> Any:
        return goes_round(0.0, axes, axes[::-1] * jnp.sign(jnp.arange(6) - 2.5)[:, None], 800, t)

    def goal(t: Any) -> Any:
        return goes_round(center, first, second, 500, t)

    def oracle(outer: Any, data: Any, key: Any) -> Any:
        del key
        t, noise = data
        return (curvatures * (turned(t) @ (outer - goal(t))) + jnp.sqrt(curvatures) * noise) @ turned(t)

    def gap(t: Any, outer: Any) -> Any:
        return jnp.sum(curvatures * (turned(t) @ (outer - goal(t))) ** 2) / 2

    return Case(lambda t, key: (t, 0.5 * jax.random.normal(key, (6,))), jnp.zeros(6), gap, oracle=oracle)


def teacher(seed: Any) -> Case:
    """Inner squares pull the prediction to old targets fᵀx, and as much to a teacher's λᵀx: h = (f + λ)ᵀx/2. The outer
    targets b_tᵀx move fast by little and slowly by much, and the noise of one in twenty is 20 times as large:
    F_t(λ) = ‖λ + f − 2b_t‖²/4 + const."""
    keys = jax.random.split(jax.random.key(seed), 2)
    old, (first, second, third) = jax.random.normal(keys[0], (5,)), frame(keys[1], 3, 5)

    def now(t: Any) -> Any:
        return goes_round(old, first, second, 800, t) + 0.15 * sine(t, 25) * third

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x, noise = two(keys[0], 40, 5), 0.3 * jax.random.normal(keys[1], (2, 40))
        spikes = jnp.where(jax.random.bernoulli(keys[2], 0.05, (40,)), 20, 1)
        return sf.Data(sf.Samples(x[0], x[0] @ old + noise[0]), sf.Samples(x[1], x[1] @ now(t) + spikes * noise[1]))

    problem = sf.Problem(lambda outer, v, x, y: (v - y) ** 2 + (v - outer @ x) ** 2, square)
    return Case(
        draw, jnp.zeros(5), lambda t, outer: jnp.sum((outer + old - 2 * now(t)) ** 2) / 4, problem,
        sf.Linear(identity, ridge=1e-4),
    )  # fmt: skip


def phases(seed: Any) -> Case:
    """Three clocks: cos(λ_k) y_{k,1} + sin(λ_k) y_{k,2} has the mean (cos(λ_k) a_k + sin(λ_k) b_k)ᵀx, and so have the
    outer targets with φ_{t,k} in place of λ_k. F_t(λ) = Σ_k 2 − 2 cos(λ_k − φ_{t,k}) + const. One clock stands, the
    others run on, one of them backwards and with a changing speed."""
    keys = jax.random.split(jax.random.key(seed), 2)
    rows, start = frame(keys[0], 6, 6).reshape(3, 2, 6), jax.random.uniform(keys[1], (3,), minval=-2, maxval=2)

    def angle(t: Any) -> Any:
        return start + jnp.array([0.0, 0.02, -0.01]) * t + jnp.array([0.0, 0.0, 1.0]) * sine(t, 250)

    def of(angles: Any, parts: Any) -> Any:
        return jnp.cos(angles) * parts[..., 0] + jnp.sin(angles) * parts[..., 1]

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = two(keys[0], 32, 6), 0.5 * jax.random.normal(keys[1], (2, 32, 3, 2))
        parts = jnp.einsum("snf,kpf->snkp", x, rows)
        return sf.Data(
            sf.Samples(x[0], parts[0] + noise[0]), sf.Samples(x[1], of(angle(t), parts[1]) + noise[1, ..., 0])
        )

    problem = sf.Problem(lambda outer, v, x, y: jnp.sum((v - of(outer, y)) ** 2), square)  # noqa: ARG005
    linear = sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-4)
    return Case(draw, jnp.zeros(3), lambda t, outer: jnp.sum(2 - 2 * jnp.cos(outer - angle(t))), problem, linear)


UNSEEN: dict[str, tuple[str, int, Callable[[Any], Case]]] = {
    "annotators": ("offsets of three annotators in a logistic regression, a random walk", 600, annotators),
    "covariate-shift": ("a tilt of the inputs for a covariate shift, noise with a season", 600, covariate_shift),
    "label-noise": ("rates of flipped labels, on the border of their box half of the time", 600, label_noise),
    "policy": ("a softmax policy with entropy, few or missing samples in many rounds", 600, policy),
    "effects": ("offsets of forty groups, four of which jump at random times", 600, effects),
    "relevance": ("log-scales of six features, their relevance moves", 600, relevance),
    "sensors": ("gains and offsets of sensors that stop ageing after 300 rounds", 900, sensors),
    "valley": ("a noisy quadratic of condition 30 whose axes turn", 600, valley),
    "teacher": ("a teacher's coefficients, two time scales, outliers among the outer targets", 600, teacher),
    "phases": ("phases of three clocks, two of which run on and on", 600, phases),
}
