"""Hyper-cleaning with corruption that goes round: real digits, groups of which have wrong labels in turn."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.algebra import norm
from smoothfbo.batching import batched
from smoothfbo.functions.base import FunctionState, Term, objective_value
from smoothfbo.functions.linear import Linear
from smoothfbo.functions.network import Network
from smoothfbo.problem import Data, Problem, Samples
from smoothfbo.source import FunctionSource
from smoothfbo.testbeds.base import AbstractTestbed, trained
from smoothfbo.testbeds.box import lower_in_box
from smoothfbo.testbeds.digits import digits
from smoothfbo.testbeds.drift import Drift, as_drift
from smoothfbo.types import Number

CLASSES = 10
LIMIT = 3.0  # of λ: weights between 0.05 and 0.95
NEWTON_STEPS = 12  # pairs of them, at most
PRECISION = 100  # roundings: so small a step is none

Predictor = Callable[[Float[Array, " p"]], Float[Array, "10"]]


class RotatingCorruption(AbstractTestbed):
    """Which groups of the training data can be trusted? Weights σ(λ_g) of the groups, learnt from a few clean samples.

    The 1,797 digits of scikit-learn (8 × 8 pixels, reduced to principal components) are dealt into training data in G
    groups, clean data and test data. While group g is corrupted, each of its labels is wrong with probability r: it
    says the next digit (9 is followed by 0). The corrupted groups change in turn. With S the softmax loss,

        ℓ_in = σ(λ_g) S(v, label),     ℓ_out = S(v, true label),     h(x) = Wx + b with penalty ½ρ‖(W, b)‖².

    The inner problem is an expectation over the training samples and their labels: with q_i the probabilities of the
    label of sample i in this round, θ_λ minimises mean_i σ(λ_g(i)) S(h(x_i), q_i) + ½ρ‖θ‖². Newton's method finds it,
    and F_t(λ) is the mean loss of h_{θ_λ} on all clean data, from which the outer mini-batches are drawn. The test
    data are used by `accuracy` and `test_loss` alone. One evaluation of F_t costs far more than a round of learning:
    evaluate few rounds.

    **Arguments:**

    - `groups`, `batch`: G, and the inner samples and outer samples of a round.
    - `components`: principal components. `training`, `clean`: sizes of these parts; the rest is for testing.
    - `drift`, `period`: a group is corrupted for the share `corrupted` of a period, the groups in turn.
    - `rate`: r. `ridge`: ρ.
    - `seed`: deals the digits out, and draws the position of round 0.
    """

    images: Float[Array, "n p"]
    labels: Int[Array, " n"]
    start: Float[Array, ""]
    drift: Drift
    corrupted: Number
    rate: Number
    ridge: Number
    groups: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    training: int = eqx.field(static=True)
    clean: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        groups: int = 5,
        batch: int = 64,
        components: int = 16,
        training: int = 1000,
        clean: int = 400,
        drift: str | Drift = "smooth",
        period: Number = 600.0,
        corrupted: Number = 0.4,
        rate: Number = 0.8,
        ridge: Number = 0.01,
        seed: int | Integer[Array, ""] = 0,
    ):
        for name, value in {"batch": batch, "training": training, "clean": clean}.items():
            checks.require_integer(value, name, 1)
        checks.require_integer(groups, "groups", 2)
        checks.require_integer(components, "components", 1)
        checks.require_range(components, "components", 1, 64)
        checks.require_range(corrupted, "corrupted", 0.0, 1.0)
        checks.require_range(rate, "rate", 0.0, 1.0)
        checks.require_range(ridge, "ridge", 0.0, open_low=True)
        images, labels = digits(components)
        checks.require_range(training + clean, "training + clean", 2, len(labels) - 1)
        key_order, key_start = jax.random.split(jax.random.key(seed))
        order = jax.random.permutation(key_order, len(labels))
        self.images = jnp.asarray(images, jnp.result_type(float))[order]
        self.labels = jnp.asarray(labels, jnp.int32)[order]
        self.start = jax.random.uniform(key_start)
        self.drift = as_drift(drift, period, seed)
        self.corrupted, self.rate, self.ridge = corrupted, rate, ridge
        self.groups, self.batch, self.training, self.clean = groups, batch, training, clean

    def is_corrupted(self, round: Int[Array, ""]) -> Bool[Array, " groups"]:
        lead = jnp.arange(self.groups, dtype=self.start.dtype) / self.groups
        return (self.start + self.drift(round) - lead) % 1 < self.corrupted

    # The problem as methods see it.

    def problem(self) -> Problem:
        loss = optax.softmax_cross_entropy_with_integer_labels
        return Problem(
            inner_loss=lambda outer, v, x, y: (  # noqa: ARG005
                jax.nn.sigmoid(outer[y["group"]]) * loss(v, y["label"])
            ),
            outer_loss=lambda outer, v, x, y: loss(v, y["label"]),  # noqa: ARG005
        )

    def source(self) -> FunctionSource:
        return FunctionSource(self.draw)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        """Mini-batches of the training data, with the labels of this round, and of the clean data."""
        key_inner, key_wrong, key_outer = jax.random.split(key, 3)
        rows = jax.random.randint(key_inner, (self.batch,), 0, self.training)
        group = rows % self.groups
        wrong = jax.random.bernoulli(key_wrong, self.rate * self.is_corrupted(round)[group].astype(self.start.dtype))
        label = (self.labels[rows] + wrong.astype(self.labels.dtype)) % CLASSES
        others = jax.random.randint(key_outer, (self.batch,), self.training, self.training + self.clean)
        # Outer samples carry a group as well, so that both kinds of data have the same form; it is not used.
        return Data(
            inner=Samples(self.images[rows], {"label": label, "group": group}),
            outer=Samples(self.images[others], {"label": self.labels[others], "group": jnp.zeros_like(group)}),
        )

    def initial(self) -> Float[Array, " groups"]:
        """All weights ½."""
        return jnp.zeros(self.groups)

    def project(self, outer: Float[Array, " groups"]) -> Float[Array, " groups"]:
        """Onto [−3, 3]^G."""
        return jnp.clip(outer, -LIMIT, LIMIT)

    def linear(self, steps: int = 5) -> Linear:
        """Fitted by Newton's method: the loss is not quadratic. It needs larger batches than there are weights."""
        example = jnp.zeros(CLASSES, self.images.dtype)
        return Linear(lambda x: x, prediction=example, ridge=self.ridge, bias=True, steps=steps)

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """The same linear classifier, trained by Adam."""
        return trained(self.linear(), rate=0.02 if rate is None else rate, steps=steps, batch_size=batch_size)

    # The exact answer.

    def solution(self, round: Int[Array, ""], outer: Float[Array, " groups"]) -> Float[Array, "10 q"]:
        """θ_λ = (W, b), by Newton's method on all training data, until a step changes nothing any more.

        A whole Newton step may lead away from the solution, for ever; so these are pairs of steps, which `Linear`
        shortens where they lead up.
        """
        family, key = self.linear(steps=2), jax.random.key(0)  # the fit is exact: the key does not matter
        terms = self._population(round, outer)

        def is_moving(carry: tuple[Array, FunctionState, Array]) -> Array:
            step, state, moved = carry
            return (step < NEWTON_STEPS) & (moved > PRECISION * jnp.finfo(moved.dtype).eps * norm(state.params))

        def improve(carry: tuple[Array, FunctionState, Array]) -> tuple[Array, FunctionState, Array]:
            step, state, _ = carry
            following = family.fit(state, terms, key)
            return step + 1, following, norm(following.params - state.params)

        first = family.init(self.images[0], None, key)
        start = jnp.zeros((), jnp.int32), first, jnp.asarray(jnp.inf, self.images.dtype)
        return jax.lax.while_loop(is_moving, improve, start)[1].params

    def _population(self, round: Int[Array, ""], outer: Float[Array, " groups"]) -> tuple[Term]:
        """The expectation of the inner loss over training samples and their labels."""
        rows = jnp.arange(self.training)
        share = (self.rate * self.is_corrupted(round).astype(outer.dtype))[rows % self.groups, None]
        right = self.labels[: self.training]
        truth, following = (jax.nn.one_hot(label % CLASSES, CLASSES, dtype=outer.dtype) for label in (right, right + 1))
        weight = jax.nn.sigmoid(outer)[rows % self.groups]

        def loss(v: Array, x: Array, y: tuple[Array, Array]) -> Array:
            del x
            weight, probabilities = y
            return weight * (jax.nn.logsumexp(v) - probabilities @ v)

        probabilities = (1 - share) * truth + share * following
        return (Term(loss, Samples(self.images[: self.training], (weight, probabilities))),)

    def objective(self, round: Int[Array, ""], outer: Float[Array, " groups"]) -> Float[Array, ""]:
        return _softmax_loss(self.linear().bind(self.solution(round, outer)), self._clean)

    def gradient(self, round: Int[Array, ""], outer: Float[Array, " groups"]) -> Float[Array, " groups"]:
        """−∂_λ ⟨∇_θ L_in(λ, θ_λ), u⟩ with ∇²_θ L_in u = ∇_θ L_out: −u minimises ½uᵀ∇²L_in u + uᵀ∇L_out."""
        family, params = self.linear(), self.solution(round, outer)
        terms, clean = self._population(round, outer), self._clean
        predictor = family.bind(params)
        slopes = jax.vmap(jax.grad(optax.softmax_cross_entropy_with_integer_labels))(
            batched(predictor)(clean.x), clean.y
        )

        def curvature(a: Array, x: Array, known: tuple[Any, Array]) -> Array:
            y, v = known
            slope = jax.grad(lambda v: terms[0].loss(v, x, y))
            return 0.5 * a @ jax.jvp(slope, (v,), (a,))[1]

        samples = terms[0].samples
        objective = (
            Term(curvature, samples._replace(y=(samples.y, batched(predictor)(samples.x))), is_quadratic=True),
            Term(lambda a, x, slope: a @ slope, clean._replace(y=slopes), is_linear=True),  # noqa: ARG005
        )
        adjoint = family.fit(family.init(self.images[0], None, jax.random.key(0)), objective, jax.random.key(0)).params

        def slope(outer: Array) -> Array:
            return jax.grad(lambda params: objective_value(family, params, self._population(round, outer)))(params)

        return jax.grad(lambda outer: jnp.sum(slope(outer) * adjoint))(outer)

    def best(self, round: Int[Array, ""]) -> Float[Array, " groups"]:
        """The smallest weights for the corrupted groups and the largest for the others, or what is better nearby.

        Mostly all derivatives point out of Λ at this corner: then it is a local minimum. Where they do not (few
        training data), projected descent begins there. No formula says that there is nothing better elsewhere.
        """
        corner = jnp.where(self.is_corrupted(round), -LIMIT, LIMIT).astype(self.images.dtype)
        return lower_in_box(partial(self.objective, round), partial(self.gradient, round), self.project, corner)

    # On data that nothing is learnt from.

    def accuracy(self, predictor: Predictor) -> Float[Array, ""]:
        """The share of the test data that an inner function, e.g. `algorithm.predictor(state)`, gets right."""
        found = jnp.argmax(batched(predictor)(self._test.x), axis=-1).astype(self.labels.dtype)
        return jnp.mean((found == self._test.y).astype(self.images.dtype))

    def test_loss(self, predictor: Predictor) -> Float[Array, ""]:
        """The mean softmax loss of an inner function on the test data."""
        return _softmax_loss(predictor, self._test)

    @property
    def _test(self) -> Samples:
        first = self.training + self.clean
        return Samples(self.images[first:], self.labels[first:])

    @property
    def _clean(self) -> Samples:
        rows = slice(self.training, self.training + self.clean)
        return Samples(self.images[rows], self.labels[rows])


def _softmax_loss(predictor: Predictor, samples: Samples) -> Float[Array, ""]:
    logits = batched(predictor)(samples.x)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, samples.y))
