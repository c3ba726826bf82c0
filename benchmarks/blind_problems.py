"""Drifting problems for one more evaluation: the recommended method had not been run on them when they were written.

Each has another inner task, another kind of λ and another kind of drift than those of `beyond_problems` and
`unseen_problems`. The first five have coordinates of λ that differ in scale or in meaning.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import smoothfbo as sf
from benchmarks.beyond_problems import Case, frame, identity
from benchmarks.unseen_problems import sine, square, two


def crosstalk(seed: Any) -> Case:
    """Two channels show z = 10 (A x + c_t B w) + noise in millivolts, with too much of a disturbance w. λ are the
    matrix and the offset of the inner targets M z + o and the log-penalty p of the coefficients of w; outer targets are
    M_t (A x + B w) + o_t. A and B have orthonormal rows, so that with s = 2/(2 + e^p) F_t(λ) = ‖10M − M_t‖² + ‖10 c_t s
    M − M_t‖² + ‖o − o_t‖² + const. Every 200 rounds all is knocked, and then relaxes over 60 rounds."""
    keys = jax.random.split(jax.random.key(seed), 3)
    mixing = jax.vmap(lambda key: frame(key, 2, 3))(jax.random.split(keys[0]))
    usual = jnp.array([1.0, 0.4, -0.4, 1.0, 2.0, -1.0, 0.8])
    knocks = jnp.array([0.5] * 4 + [2.0] * 2 + [0.6]) * jax.random.rademacher(keys[1], (3, 7))

    def truth(t: Any) -> Any:
        now = usual + knocks[t // 200] * jnp.exp(-(t % 200) / 60)
        return now[:4].reshape(2, 2), now[4:6], 1 + jnp.exp(now[6])

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x, noise = two(keys[0], 48, 6), jax.random.normal(keys[1], (2, 48, 2))
        matrix, offset, excess = truth(t)
        signal, disturbance = x[..., :3] @ mixing[0].T, x[..., 3:] @ mixing[1].T
        readings = 10 * (signal[0] + excess * disturbance[0]) + 3 * noise[0]
        right = (signal[1] + disturbance[1]) @ matrix.T + offset + 0.3 * noise[1]
        return sf.Data(sf.Samples(x[0], readings), sf.Samples(x[1], right))

    def gap(t: Any, outer: Any) -> Any:
        matrix, offset, excess = truth(t)
        size = 10 * excess * 2 / (2 + jnp.exp(outer["log_penalty"]))
        errors = (10 * outer["matrix"] - matrix, size * outer["matrix"] - matrix, outer["offset"] - offset)
        return sum(jnp.sum(error**2) for error in errors)

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return jnp.sum((v - outer["matrix"] @ y - outer["offset"]) ** 2)

    def ridge(outer: Any) -> Any:
        return jnp.exp(outer["log_penalty"]) * (jnp.arange(7) // 3 == 1) + 1e-4

    linear = sf.Linear(identity, prediction=jnp.zeros(2), ridge=ridge, bias=True)
    start = {"matrix": 0.1 * jnp.eye(2), "offset": jnp.zeros(2), "log_penalty": jnp.zeros(())}
    return Case(draw, start, gap, sf.Problem(inner_loss, square), linear)


def similar_days(seed: Any) -> Case:
    """Which days of the past count? Their temperatures u are N(12, 10²), those of the outer data N(m_t, s_t²), and the
    two targets are A x + (z, z²) with z = (u − 12)/10, which h(x) does not see. λ are the centre c in degrees and the
    log-width of the weights exp(−(u − c)²/(2w²)), which make N(μ, σ²) of the z: with c and w in units of z μ = c/(1 +
    w²), σ² = w²/(1 + w²). F_t(λ) = (μ − E z)² + (μ² + σ² − E z²)² + const. m_t has a year of 365 rounds, and
    weather."""
    keys = jax.random.split(jax.random.key(seed), 3)
    slopes, place = jax.random.normal(keys[0], (2, 3)) / 2, jax.random.uniform(keys[1])
    moves = 0.25 * jax.random.normal(keys[2], (600,))
    _, weather = jax.lax.scan(lambda now, move: (0.97 * now + move, now), jnp.zeros(()), moves)

    def outside(t: Any) -> Any:
        """Mean and deviation of z."""
        return 0.6 * sine(t, 365, place) + weather[t] / 10, 0.5 + 0.15 * sine(t, 365 / 2, place)

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x, normal = two(keys[0], 96, 3), jax.random.normal(keys[1], (2, 96))
        mean, deviation = outside(t)
        z = jnp.stack([normal[0], mean + deviation * normal[1]])
        targets = x @ slopes.T + jnp.stack([z, z**2], axis=-1) + 0.3 * jax.random.normal(keys[2], (2, 96, 2))
        return sf.Data(*(sf.Samples(x[i], {"target": targets[i], "degrees": 12 + 10 * z[i]}) for i in range(2)))

    def gap(t: Any, outer: Any) -> Any:
        center, width = (outer["degrees"] - 12) / 10, jnp.exp(outer["log_width"]) / 10
        mean, deviation = outside(t)
        weighted = center / (1 + width**2)
        second = weighted**2 + width**2 / (1 + width**2)
        return (weighted - mean) ** 2 + (second - mean**2 - deviation**2) ** 2

    def outer_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return jnp.sum((v - y["target"]) ** 2)

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        away = (y["degrees"] - outer["degrees"]) / jnp.exp(outer["log_width"])
        return jnp.exp(-(away**2) / 2) * outer_loss(outer, v, x, y)

    linear = sf.Linear(identity, prediction=jnp.zeros(2), ridge=1e-5, bias=True)
    start = {"degrees": jnp.array(12.0), "log_width": jnp.log(jnp.array(10.0))}
    return Case(draw, start, gap, sf.Problem(inner_loss, outer_loss), linear)


def distillation(seed: Any) -> Case:
    """A student learns the soft labels softmax(Σ_k w_k G_k x/T) of three teachers, three classes, with w = softmax of
    the scores in λ and a log-temperature, and is right when h(x) = Σ_k w_k G_k x/T. Outer labels are drawn with the
    chances of scores and a temperature that move: the gap is the mean of KL(outer chances, soft labels) over the ten
    inputs that there are. Every 150 rounds another teacher takes over, by and by."""
    keys = jax.random.split(jax.random.key(seed), 2)
    inputs, teachers = jax.random.normal(keys[0], (10, 4)), jax.random.normal(keys[1], (3, 3, 4))

    def pooled(outer: Any) -> Any:
        """Logits of the soft labels of all inputs."""
        weights = jax.nn.softmax(outer["scores"]) / jnp.exp(outer["log_temperature"])
        return jnp.einsum("k,kcf,nf->nc", weights, teachers, inputs)

    def truth(t: Any) -> Any:
        share, turn = jax.nn.sigmoid((t % 150 - 75) / 8), t // 150
        one, other = (jax.nn.one_hot(each % 3, 3) for each in (turn, turn + 1))
        return pooled({"scores": 2.5 * ((1 - share) * one + share * other), "log_temperature": 0.6 * sine(t, 700)})

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        which = jax.random.randint(keys[0], (2, 64), 0, 10)
        labels = jax.random.categorical(keys[1], truth(t)[which[1]])
        return sf.Data(sf.Samples(inputs[which[0]], which[0]), sf.Samples(inputs[which[1]], labels))

    def gap(t: Any, outer: Any) -> Any:
        true, student = jax.nn.log_softmax(truth(t)), jax.nn.log_softmax(pooled(outer))
        return jnp.mean(jnp.sum(jnp.exp(true) * (true - student), axis=1))

    problem = sf.Problem(
        lambda outer, v, x, y: optax.softmax_cross_entropy(v, jax.nn.softmax(pooled(outer)[y])),  # noqa: ARG005
        lambda outer, v, x, y: optax.softmax_cross_entropy_with_integer_labels(v, y),  # noqa: ARG005
    )
    linear = sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-4, steps=5)
    return Case(draw, {"scores": jnp.zeros(3), "log_temperature": jnp.zeros(())}, gap, problem, linear)


def decay(seed: Any) -> Case:
    """Probes of two nuclides wait for a ~ U(0, 10) hours and then show y = g_t + (3 + fᵀx) e^{−r_t a} + noise. λ are
    the decay rates r per hour, in [0, 0.5], and the backgrounds g of the inner targets (y − g) e^{r a}; outer probes
    did not wait and have no background. With m(δ) = (e^{10δ} − 1)/(10δ), u = m(r − r_t) − 1 and b = (g_t − g) m(r) each
    nuclide has the part ‖f‖² u² + (3u + b)² in F_t(λ) − const. The backgrounds grow until they are cleaned every 150
    rounds."""
    keys = jax.random.split(jax.random.key(seed), 2)
    slopes, places = 2 * frame(keys[0], 2, 4), jax.random.uniform(keys[1], (2, 2))
    usual = jnp.array([0.05, 0.2])

    def truth(t: Any) -> Any:
        return {"rate": usual * jnp.exp(0.4 * sine(t, 500, places[0])), "background": 4 * ((t / 150 + places[1]) % 1)}

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 3)
        x, noise = two(keys[0], 48, 4), 0.4 * jax.random.normal(keys[1], (2, 48, 2))
        hours = jax.random.uniform(keys[2], (48,), maxval=10)
        now, right = truth(t), 3 + x @ slopes.T
        counts = now["background"] + right[0] * jnp.exp(-hours[:, None] * now["rate"]) + noise[0]
        return sf.Data(sf.Samples(x[0], {"count": counts, "hours": hours}), sf.Samples(x[1], right[1] + noise[1]))

    def growth(rate: Any) -> Any:
        exponent = 10 * jnp.where(jnp.abs(rate) < 1e-7, 1e-7, rate)
        return jnp.expm1(exponent) / exponent

    def gap(t: Any, outer: Any) -> Any:
        now = truth(t)
        excess = growth(outer["rate"] - now["rate"]) - 1
        left = (now["background"] - outer["background"]) * growth(outer["rate"])
        return jnp.sum(4 * excess**2 + (3 * excess + left) ** 2)

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        return jnp.sum((v - (y["count"] - outer["background"]) * jnp.exp(outer["rate"] * y["hours"])) ** 2)

    def project(outer: Any) -> Any:
        return {**outer, "rate": jnp.clip(outer["rate"], 0, 0.5)}

    linear = sf.Linear(identity, prediction=jnp.zeros(2), ridge=1e-4, bias=True)
    start = {"rate": jnp.full(2, 0.1), "background": jnp.zeros(2)}
    return Case(draw, start, gap, sf.Problem(inner_loss, square), linear, project)


def exposures(seed: Any) -> Case:
    """A Poisson regression of cases of four kinds with the rates e^{s_k}. Inner counts come from three clinics with
    shares π_{k,g} of each kind and N_{t,g} thousand people, about 2, 10 and 40; λ are these numbers, at least 0.5.
    Outer counts are of one thousand. h_k = s_k + log(Σ_g π_{k,g} N_{t,g}/Σ_g π_{k,g} λ_g), and the gap is the mean over
    k of e^{h_k} − e^{s_k} − e^{s_k} (h_k − s_k). log N_t goes up and down in straight lines."""
    keys = jax.random.split(jax.random.key(seed), 2)
    scores, places = jax.random.uniform(keys[0], (4,)), jax.random.uniform(keys[1], (3,))
    shares = jnp.array([[0.9, 0.08, 0.02], [0.5, 0.45, 0.05], [0.3, 0.4, 0.3], [0.6, 0.1, 0.3]])
    census = jnp.array([2.0, 10.0, 40.0])

    def people(t: Any) -> Any:
        return census * jnp.exp(0.8 * (4 * jnp.abs((t / 400 + places) % 1 - 0.5) - 1))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        kind = jnp.arange(96) % 4
        who = jax.random.categorical(keys[0], jnp.log(shares)[kind])
        means = jnp.exp(scores[kind]) * jnp.stack([people(t)[who], jnp.ones(96)])
        counts = jax.random.poisson(keys[1], means).astype(means.dtype)
        return sf.Data(*(sf.Samples(jnp.eye(4)[kind], {"count": each, "who": who}) for each in counts))

    def gap(t: Any, outer: Any) -> Any:
        over = jnp.log(shares @ people(t)) - jnp.log(shares @ outer)
        return jnp.mean(jnp.exp(scores) * (jnp.expm1(over) - over))

    problem = sf.Problem(
        lambda outer, v, x, y: outer[y["who"]] * jnp.exp(v) - y["count"] * v,  # noqa: ARG005
        lambda outer, v, x, y: jnp.exp(v) - y["count"] * v,  # noqa: ARG005
    )
    linear = sf.Linear(identity, ridge=1e-4, steps=5)
    return Case(draw, census, gap, problem, linear, lambda outer: jnp.maximum(outer, 0.5))


def selection(seed: Any) -> Case:
    """A survey asks people with three attributes z = ±1, and the answers are A x + z + noise; h(x) does not see z. In
    the inner data only the share σ(s_tᵀz) replies, and each reply counts 1/σ(λᵀz). h errs by the weighted mean of z:
    F_t(λ) = ‖Σ_z z q(z)‖² + const, q ∝ σ(s_tᵀz)/σ(λᵀz) over the eight z. s_t never comes back: it has periods of 320
    and 198 rounds."""
    keys = jax.random.split(jax.random.key(seed), 2)
    slopes, places = jax.random.normal(keys[0], (3, 3)) / 2, jax.random.uniform(keys[1], (2, 3))
    kinds = 2.0 * (jnp.arange(8)[:, None] // jnp.array([1, 2, 4]) % 2) - 1

    def tendency(t: Any) -> Any:
        return 0.8 * sine(t, 320, places[0]) + 0.5 * sine(t, 198, places[1])

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 4)
        x, kind = two(keys[0], 120, 3), kinds[jax.random.randint(keys[1], (2, 120), 0, 8)]
        replies = jax.random.bernoulli(keys[2], jax.nn.sigmoid(kind[0] @ tendency(t)))
        targets = x @ slopes.T + kind + 0.3 * jax.random.normal(keys[3], (2, 120, 3))
        inner, outer = ({"target": targets[i], "kind": kind[i]} for i in range(2))
        return sf.Data(sf.Samples(x[0], inner, replies), sf.Samples(x[1], outer, jnp.ones(120, bool)))

    def gap(t: Any, outer: Any) -> Any:
        log = jax.nn.log_sigmoid
        shares = jax.nn.softmax(log(kinds @ tendency(t)) - log(kinds @ outer))
        return jnp.sum((shares @ kinds) ** 2)

    def outer_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del outer, x
        return jnp.sum((v - y["target"]) ** 2)

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        return outer_loss(outer, v, x, y) / jax.nn.sigmoid(y["kind"] @ outer)

    linear = sf.Linear(identity, prediction=jnp.zeros(3), ridge=1e-4, bias=True)
    return Case(draw, jnp.zeros(3), gap, sf.Problem(inner_loss, outer_loss), linear)


def buffer(seed: Any) -> Case:
    """Orders of three goods, for which too little costs more than too much: with the residual r = y − v and a = e^{λ_g}
    the inner loss is (e^{ar} − 1 − ar)/a². For noise N(0, σ_g²) h is a σ_g²/2 above the mean; the outer targets lie
    b_{t,g} above it: F_t(λ) is the mean over g of (a σ_g²/2 − b_{t,g})² + const. Each good has a time of need in 300
    rounds."""
    keys = jax.random.split(jax.random.key(seed), 2)
    slope, places = jax.random.normal(keys[0], (5,)), jax.random.uniform(keys[1], (3,))
    noises = jnp.array([0.7, 1.0, 1.4])

    def margins(t: Any) -> Any:
        return noises * (0.1 + 0.5 * jnp.maximum(0, sine(t, 300, places)))

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        good = jnp.arange(144) % 3
        x = jnp.concatenate([two(keys[0], 144, 2), jnp.broadcast_to(jnp.eye(3)[good], (2, 144, 3))], axis=2)
        noise = noises[good] * jax.random.normal(keys[1], (2, 144))
        targets = x @ slope + jnp.stack([noise[0], margins(t)[good] + 0.5 * noise[1]])
        return sf.Data(*(sf.Samples(x[i], {"target": targets[i], "good": good}) for i in range(2)))

    def inner_loss(outer: Any, v: Any, x: Any, y: Any) -> Any:
        del x
        sharpness = jnp.exp(outer[y["good"]])
        residual = sharpness * (y["target"] - v)
        return (jnp.expm1(residual) - residual) / sharpness**2

    return Case(
        draw, jnp.zeros(3), lambda t, outer: jnp.mean((jnp.exp(outer) * noises**2 / 2 - margins(t)) ** 2),
        sf.Problem(inner_loss, lambda outer, v, x, y: (v - y["target"]) ** 2),  # noqa: ARG005
        sf.Linear(identity, ridge=1e-4, steps=5),
    )  # fmt: skip


def smoothness(seed: Any) -> Case:
    """A curve of four frequencies k, whose inner coefficients ±1 are penalised by ρ_k = e^{λ₁} + e^{λ₂} (k/2)⁴, for
    size and for roughness: θ_k = ±s(ρ_k), s(ρ) = 2/(2 + ρ). Outer coefficients are those for penalties that swing more
    and more: F_t(λ) = Σ_k 2 (s(ρ_k) − s(ρ_{t,k}))² + const."""
    keys = jax.random.split(jax.random.key(seed), 2)
    signs, places = jax.random.rademacher(keys[0], (8,)), jax.random.uniform(keys[1], (2,))
    frequencies = jnp.arange(1.0, 5.0)

    def penalties(outer: Any) -> Any:
        return jnp.tile(jnp.exp(outer[0]) + jnp.exp(outer[1]) * (frequencies / 2) ** 4, 2)

    def shares(outer: Any) -> Any:
        return 2 / (2 + penalties(outer))

    def swung(t: Any) -> Any:
        return jnp.array([-1.0, 0.0]) + t / 300 * sine(t, jnp.array([400.0, 240.0]), places)

    def waves(x: Any) -> Any:
        return jnp.sqrt(2.0).astype(x.dtype) * jnp.concatenate([jnp.cos(frequencies * x), jnp.sin(frequencies * x)])

    def draw(t: Any, key: Any) -> sf.Data:
        keys = jax.random.split(key, 2)
        x = jax.random.uniform(keys[0], (2, 64), maxval=2 * jnp.pi)
        features, noise = jax.vmap(jax.vmap(waves))(x), 0.5 * jax.random.normal(keys[1], (2, 64))
        targets = jnp.stack([features[0] @ signs, features[1] @ (signs * shares(swung(t)))])
        return sf.Data(*map(sf.Samples, x, targets + noise))

    def gap(t: Any, outer: Any) -> Any:
        return jnp.sum((shares(outer) - shares(swung(t))) ** 2)

    return Case(draw, jnp.zeros(2), gap, sf.Problem(square, square), sf.Linear(waves, ridge=penalties))


BLIND: dict[str, tuple[str, int, Callable[[Any], Case]]] = {
    "crosstalk": ("a matrix in 1/mV, offsets and a log-penalty, knocked every 200 rounds", 600, crosstalk),
    "similar-days": ("centre in degrees and log-width of sample weights, a year with weather", 600, similar_days),
    "distillation": ("scores of three teachers and a log-temperature, takeovers every 150 rounds", 600, distillation),
    "decay": ("decay rates and backgrounds that grow until they are cleaned", 600, decay),
    "exposures": ("three exposures of a Poisson regression, about 2, 10 and 40", 600, exposures),
    "selection": ("tendencies to reply in inverse weights, two periods", 600, selection),
    "buffer": ("log-asymmetries of a loss for three goods, times of need", 600, buffer),
    "smoothness": ("log-penalties of size and of roughness that swing more and more", 600, smoothness),
}
