"""Steps of λ that find their own length by what the last move achieved."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo import checks
from smoothfbo.adaptive.coordinates import CoordinateState, all_alike, learn_factors, shortened, without_evidence
from smoothfbo.adaptive.moves import believable, combined, made, scaled, shortening, through, traced
from smoothfbo.adaptive.retreat import RetreatState, at_start, has_overshot, judge_place
from smoothfbo.adaptive.usual import LARGE, UsualState, entries, inverse_sizes, learn, nothing_known, weigh
from smoothfbo.algebra import cosine, norm, squared_norm
from smoothfbo.hypergradients.base import Candidates
from smoothfbo.types import Number

SMALLEST = 1e-6  # a length, relative to the scale of λ_0
FEW = 10  # coordinates; where there are more, the first move is no longer for it
LONGEST, CAUTIOUS = 1.0, 0.3  # a move, relative to the size of λ; and a cautious one
SHARE = 0.02  # of the first length along the running mean: it grows where it helps
RECENT = 0.8  # of the old mean, in the running mean of cosines
FADING = 0.95  # of the old mean, in the running mean of the judge's squares
LONG = 0.99999  # memory: with 1 the running mean of squares would never begin
HURRY = 0.3  # κ where all recent cosines are 1 or −1
SHORTER, MUCH_SHORTER = 0.3, 0.1  # lengths after a return, and after one from the first moves


class AdaptiveState(NamedTuple):
    """State of `adaptive_steps`. `lengths` are ρ_k, how far a coordinate of λ moves along each direction."""

    rounds: Int[Array, ""]  # with a gradient
    scale: Float[Array, ""]  # of λ_0
    lengths: Float[Array, " directions"]
    usual: UsualState
    retreat: RetreatState
    judged: Float[Array, ""]  # running mean of the squared norm of the judge, with a shorter memory
    mean: PyTree  # running mean of the gradient, not yet divided by the sum of its weights
    directions: tuple[PyTree, ...]  # of the last round: a candidate each, and the running mean
    moves: tuple[PyTree, ...]  # h_k: what was followed of them in the last rounds
    cosines: Float[Array, " directions"]  # running means of c
    before: PyTree  # λ of the last round
    average: PyTree  # f ∘ Σ ρ_k g_k/rms_k / Σ ρ_k/rms_k, the gradient that the last move followed
    coordinates: CoordinateState  # f, and what is known of each coordinate
    since: Int[Array, ""]  # rounds with a gradient since the problem changed at once, or since the start


def adaptive_steps(
    length: Number = 1e-2,
    *,
    candidates: int = 1,
    averaging: int = 16,
    adaptation: Number = 0.02,
    memory: Number = 0.999,
    cautious: bool = False,
    project: Callable[[PyTree], PyTree] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """λ_{t+1} = λ_t + Σ_k ρ_{t,k} d_{t,k},  d_{t,k} = −f_t ∘ g_{t,k}/rms_{t,k}: steps that find their own length.

    The candidates g_{t,k} are gradients of the same round made in different ways: by `Replayed(..., own=...)`, say. A
    judge ĝ_t comes with them, a gradient of samples that were not there when the earlier moves were made:

        log ρ_{t,k} = log ρ_{t−1,k} + κ c_{t,k},     c_{t,k} = min(1, ‖ĝ_t‖/s_t) cos(−ĝ_t, h_{t,k}),
        h_{t,k} = d_{t−1,k} + 0.8 h_{t−1,k},         s_t = root mean square of ‖ĝ‖ in the last twenty rounds or so

    h is how λ_t depends on ρ_k through the last moves, which later ones partly undo. So the cosine is, up to a positive
    factor, about minus the derivative of the new round's objective F_t(λ_t) in log ρ_k, and this is stochastic gradient
    descent on what counts, the loss of the *next* round. Where the gradient still points along a direction of the last
    moves, these were too short; where it points back, too long. Directions that are mostly noise are shortened, those
    that lag behind a drift as well. With one candidate successive gradients become uncorrelated, which is what an
    optimal filter does. (Rates learnt from successive gradients: Almeida, Langlois, Amaral and Plakhov, 1998; Baydin et
    al., 2018; the trace h: Sutton, 1992.)

    A gradient that fades away says little, however well it agrees with the moves: this is the first factor of c.
    Weights behind a softmax, say, have their best answer at infinity while one source is right. Judged by the cosine
    alone, lengths grow there until gradients vanish, and λ never comes back when another source is right.

    A round whose gradients are r > 3 times as large as usual counts (3/r)², so that a single wild sample neither moves
    λ far nor shortens all later steps. Where the gradients before were as large and agree, it counts fully: after a
    jump, say. Where they do not agree, the noise has become larger, and rounds count less for as long as it lasts.
    (The formulas: `adaptive.usual`.)

    Coordinates of λ may have other units, or move at another speed. Each has a factor f_{t,j}, which is 1 until it is
    clear that this coordinate keeps moving too little, or too far, while the others do not. (`adaptive.coordinates`.)

    A move may end far up a steep wall. With candidates from `Replayed(..., own=...)` it shows, because λ is compared
    with where it was on the same samples. If the outer loss is larger by more than the move promised to make it
    smaller, and falls along the move where it began, λ goes back at once, and all lengths become 0.3 of what they were.
    (`adaptive.retreat.has_overshot`.)

    A move may also end where gradients vanish and no step leads back: behind a softmax that the first move has
    saturated, say. If gradients stay below a tenth of their size and the outer loss is worse than before, λ returns to
    the last place whose gradients were informative, and all lengths are shortened. (`adaptive.retreat`.)

    One more direction is the running mean of the gradient g_t, m_t = (1 − 1/a) m_{t−1} + g_t/a with a = `averaging`
    (divided by the sum of its weights), as in the heavy-ball method: where λ* moves steadily, it is the velocity. It is
    delayed, as every mean of stored gradients is; its length is learnt like the others, so it is used where it helps.

    It ends a chain in place of `optax.sgd`, and has no rate in the units of a gradient: rms is the usual size of
    gradients, a root mean square of the last fifty rounds or so in which unusual ones are bounded (`adaptive.usual`).
    No move is longer than ‖λ‖ (or √d times the scale of λ_0, if that is more): a longer one is shortened. No length is
    longer than that for a gradient of the usual size: on the border of Λ, where moves are cut, it could grow for ever.

    Moves are those that were really made, after the projection: entry by entry, or, with `project`, by its derivative D
    at the point that was projected, h_{t,k} = D(d_{t−1,k} + 0.8 h_{t−1,k}), with Dĝ_t as the judge. On the border of a
    ball or a simplex −ĝ_t points outwards round after round, and so do the entries of a move along the border that are
    left where the others are cut: judged by these, every move looks too short.

    **Arguments:**

    - `length`: Σ_k ρ_{0,k}, how far a coordinate of λ moves in the first round: `length` times max(1, rms of λ_0), and
      less where λ has more than ten coordinates, so that the move as a whole is no longer, and where the first move
      promises to take away more than the outer loss (`adaptive.moves.believable`). Too small is better than too large:
      lengths grow fast at the start, but from where gradients vanish no step leads back. It is the same for all
      coordinates: their factors take some tens of rounds to learn, so comparable scales are better still.
    - `candidates`: how many gradients a round has. With 1 the gradient itself is the only one, and the judge.
    - `averaging`: a, in rounds. With 1 there is no running mean.
    - `adaptation`: κ, at least. The first rounds adapt faster, with 1/√(1 + t), and so do rounds in which moves keep
      being too short or too long: with 0.3 m², where m is the mean c of the last five rounds or so.
    - `memory`: share of the old mean in the long-run mean of squares. rms never falls below a sixth of its root.
    - `cautious`: for a ĝ_t that shares some noise with the moves that it judges, so that they look too short. No move
      is then longer than 0.3 ‖λ‖, and one that is cut to it shortens the lengths, too, which would grow for ever. Where
      large gradients come now and then, after jumps, say, that makes the answer slow. Coordinates have no factors.
    - `project`: the projection that the loop makes after the step, the same as in `Online`. It is called eight times
      more a round, for two candidates. Without it cuts are seen entry by entry, which is right where Λ is a box.

    A gradient whose noise is correlated from round to round cannot judge the moves that it made: do not put a
    `window_average` in front, and give `Replayed` an estimator for the round's own data, `own`.
    """
    checks.require_range(length, "length", 0.0, open_low=True)
    checks.require_integer(candidates, "candidates", 1)
    checks.require_integer(averaging, "averaging", 1)
    checks.require_range(adaptation, "adaptation", 0.0)
    checks.require_range(memory, "memory", 0.0, LONG)
    planned = candidates  # in `update` the word means the gradients themselves
    is_averaged = averaging > 1
    shares = [(1 - SHARE * is_averaged) / planned] * planned + [SHARE] * is_averaged

    def longest(outer: PyTree, scale: Float[Array, ""]) -> Float[Array, ""]:
        size = jnp.maximum(entries(outer) ** 0.5 * scale, norm(outer).astype(scale.dtype))
        return (CAUTIOUS if cautious else LONGEST) * size

    @jax.jit  # one program in place of one for each operation
    def init(params: PyTree) -> AdaptiveState:
        checks.require_floating(params, "params")
        number = norm(params).dtype
        scale = jnp.maximum(1, norm(params) / jnp.sqrt(jnp.asarray(entries(params), number)))

        def zeros() -> PyTree:
            return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params)

        first = jnp.asarray(length, number) * scale * min(1.0, (FEW / entries(params)) ** 0.5)
        return AdaptiveState(
            rounds=jnp.zeros((), jnp.int32),
            scale=scale,
            lengths=first * jnp.asarray(shares, number),
            usual=nothing_known(params, planned, len(shares), number),
            retreat=at_start(params, jnp.zeros(len(shares), number)),
            judged=jnp.zeros((), number),
            mean=zeros(),
            directions=tuple(zeros() for _ in shares),
            moves=tuple(zeros() for _ in shares),
            cosines=jnp.zeros(len(shares), number),
            before=jax.tree.map(jnp.array, params),
            average=zeros(),
            coordinates=all_alike(params),
            since=jnp.zeros((), jnp.int32),
        )

    def update(
        updates: PyTree,
        state: AdaptiveState,
        params: PyTree | None = None,
        *,
        candidates: Any = None,
        grad: PyTree | None = None,
        value: Any = None,
        **others: Any,
    ) -> tuple[PyTree, AdaptiveState]:
        del others
        if params is None:
            raise ValueError("adaptive_steps needs params: call update(updates, state, params), as Online does.")
        gradients, judge = _checked(updates, candidates, grad, planned)
        number = state.lengths.dtype
        # A skipped round has gradients of zero; the running means must never see what is not finite.
        usable = jnp.isfinite(squared_norm(gradients)) & (squared_norm(judge) > 0)

        if candidates is not None and candidates.changed is not None:
            state = optax.tree.where(candidates.changed, _begun_again(state), state)
        last_move = optax.tree.sub(params, state.before)
        undone = has_overshot(last_move, state.usual.last, gradients, None if candidates is None else candidates.lost)
        age, since = state.rounds.astype(number), state.since.astype(number)
        kept = jnp.asarray(memory, number)
        as_they_are = gradients
        weight, usual = weigh(state.usual, gradients)
        updates, judge, gradients = scaled((updates, judge, gradients), weight)
        mean = jax.tree.map(lambda old, new: old + (new - old) / averaging, state.mean, updates)
        if is_averaged:
            counted = 1 - (1 - 1 / averaging) ** (since + 1)
            gradients = (*gradients, scaled(mean, 1 / counted))

        if project is None:
            moves = tuple(map(traced, made(state.lengths, state.directions, state.before, params), state.moves))
        else:
            past = combined(state.lengths, state.directions)
            past = scaled(past, shortening(past, longest(state.before, state.scale)))
            followed = partial(through, project, state.before, past)
            moves = tuple(map(followed, map(traced, state.directions, state.moves)))
            judge = followed(judge)
        judged, faded = _faded(state.judged, squared_norm(judge).astype(number), age)
        cosines = -faded * jnp.stack([cosine(judge, move) for move in moves]).astype(number)
        recent = RECENT * state.cosines + (1 - RECENT) * cosines
        speed = jnp.maximum(jnp.asarray(adaptation, number), jnp.maximum(1 / jnp.sqrt(1 + age), HURRY * recent**2))
        lengths = state.lengths * jnp.exp(speed * cosines)
        most = longest(params, state.scale)
        lengths = jnp.clip(lengths, SMALLEST * state.scale, most / entries(params) ** 0.5)

        usual = learn(usual, (*as_they_are, *gradients[planned:]), age, kept)
        inverse = inverse_sizes(usual)
        directions = tuple(scaled(gradient, -factor) for gradient, factor in zip(gradients, inverse, strict=True))
        coordinates = state.coordinates
        if not cautious:
            coordinates = learn_factors(coordinates, judge, combined(state.lengths, moves), faded)
            directions = tuple(jax.tree.map(jnp.multiply, coordinates.factors, each) for each in directions)
        zeros = optax.tree.zeros_like(params)
        share = believable(gradients, combined(lengths, directions), value).astype(number)
        lengths = jnp.where(age == 0, share, 1) * lengths
        move = combined(lengths, directions)
        shorter = shortening(move, most)
        average = scaled(move, -1 / jnp.sum(lengths * inverse))
        move, lengths = scaled(move, shorter), (shorter if cautious else 1) * lengths
        sizes = usual.long_sizes[0], jnp.maximum(usual.long_sizes[0], jnp.max(state.usual.long_sizes))
        returns, was_too_long, retreat = judge_place(state.retreat, params, usual.usual, sizes, value, age)
        following = AdaptiveState(
            state.rounds + 1, state.scale, lengths, usual, retreat, judged, mean, directions, moves, recent, params,
            average, coordinates, state.since + 1,
        )  # fmt: skip
        returned = _begun_again(following)._replace(
            lengths=jnp.where(was_too_long, MUCH_SHORTER, SHORTER) * lengths,
            coordinates=shortened(coordinates),
            usual=usual._replace(usual=state.retreat.usual, long_sizes=jnp.ones_like(usual.long_sizes)),
            before=state.retreat.place,  # going back is no move that could be undone
            average=zeros,
        )
        move = optax.tree.where(returns, optax.tree.sub(state.retreat.place, params), move)
        following = optax.tree.where(returns, returned, following)
        nothing = tuple(zeros for _ in directions)
        # What was learnt at the far end of a move that is undone is forgotten, but for its length.
        back = _begun_again(state)._replace(rounds=state.rounds + 1, lengths=SHORTER * state.lengths, average=zeros)
        move = optax.tree.where(undone, optax.tree.sub(state.before, params), move)
        following = optax.tree.where(undone, back, following)
        # λ stays where the moves so far have led: the next round judges them, and no move of this one.
        idle = state._replace(directions=nothing, moves=moves, before=params, average=zeros)
        # Gradients that are 0 where the losses have values: λ may have come to a flat place.
        is_flat = ~usable & jnp.isfinite(squared_norm(gradients)) & _is_known(value)
        seen = idle._replace(retreat=retreat, usual=state.usual._replace(long_sizes=usual.long_sizes))
        idle, usable = optax.tree.where(is_flat, seen, idle), usable | (is_flat & returns)
        return optax.tree.where(usable, move, zeros), optax.tree.where(usable, following, idle)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def _checked(updates: PyTree, candidates: Any, grad: PyTree | None, planned: int) -> tuple[tuple[PyTree, ...], PyTree]:
    """The gradients of a round and their judge, if there are as many as planned and nothing has changed them."""
    if not isinstance(candidates, Candidates | None):
        raise TypeError(
            f"candidates must be a smoothfbo.Candidates(directions, judge), got a {type(candidates).__name__}."
        )
    gradients, judge = ((updates,), updates) if candidates is None else candidates[:2]
    if len(gradients) != planned:
        raise ValueError(
            f"adaptive_steps was made for candidates={planned}, but gets {len(gradients)} from the "
            f"estimator: write adaptive_steps(candidates={len(gradients)}), and nothing around it that does not "
            "pass them on, such as optax.MultiSteps."
        )
    if candidates is not None and not _is_untouched(updates, grad):
        raise ValueError(
            "adaptive_steps takes all candidates as the estimator gives them, so nothing may change "
            "the gradient before it: write adaptive_steps alone, without a chain or a mask."
        )
    return gradients, judge


def _is_known(value: Any) -> Any:
    """Whether there is an outer loss. In a round that was skipped it is infinite."""
    return False if value is None else jnp.isfinite(value)


def _faded(
    before: Float[Array, ""], square: Float[Array, ""], age: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The running mean of the judge's squares, in which one counts nine times the mean at most; and min(1, ‖ĝ‖/s)."""
    mean = before / jnp.where(age > 0, 1 - FADING**age, 1)
    bounded = jnp.where(before > 0, jnp.minimum(square, LARGE**2 * mean), square)
    judged = FADING * before + (1 - FADING) * bounded
    usual = jnp.where(judged > 0, judged, 1) / (1 - FADING ** (age + 1))
    return judged, jnp.minimum(1, jnp.sqrt(square / usual))


def _begun_again(state: AdaptiveState) -> AdaptiveState:
    """After a change nothing can be said about the moves before it. Lengths are kept, and adapt as before: if they
    adapted faster, they would run off where gradients fade, behind a softmax, say."""
    mean, directions, moves = optax.tree.zeros_like((state.mean, state.directions, state.moves))
    coordinates = without_evidence(state.coordinates)
    return state._replace(
        since=jnp.zeros_like(state.since), mean=mean, directions=directions, moves=moves, coordinates=coordinates
    )


def _is_untouched(updates: PyTree, grad: PyTree | None) -> bool:
    """Whether the gradient is the very one that the loop has: then no transformation came before."""
    if grad is None:
        return True
    ours, theirs = jax.tree.leaves(updates), jax.tree.leaves(grad)
    return len(ours) == len(theirs) and all(one is other for one, other in zip(ours, theirs, strict=True))
