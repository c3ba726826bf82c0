"""Steps that find their own length, in NumPy, written from the formulas; and the same by the library."""

import jax
import jax.numpy as jnp
import numpy as np

import smoothfbo as sf
from smoothfbo.hypergradients.base import Candidates

ROUNDS = 40


def reference(
    gradients,
    start,
    project,
    length=1e-2,
    adaptation=0.02,
    memory=0.999,
    averaging=16,
    cautious=False,
    through=None,
    changes=(),
    trace=0.8,
):
    """λ_t of all rounds for given candidates (rounds, k, d), written from the formulas. `through(point, vector)` is the
    derivative of the projection. In the rounds `changes` the problem changes at once."""
    outer, count, as_they_are = np.array(start), gradients.shape[1], gradients
    gradients = gradients * counted(gradients, memory)[:, None, None]
    scale = max(1, np.sqrt(np.mean(outer**2)))
    shares = np.full(count, 1 / count)
    first = [max([0, *(t for t in changes if t <= now)]) for now in range(ROUNDS)]
    if averaging > 1:
        weights = (1 - 1 / averaging) ** np.arange(ROUNDS)
        means = [
            weights[: t + 1 - s][::-1] @ gradients[s : t + 1, -1] / weights[: t + 1 - s].sum()
            for t, s in enumerate(first)
        ]
        gradients = np.concatenate([gradients, np.array(means)[:, None]], axis=1)
        shares = np.append(0.98 * shares, 0.02)
        count += 1
    lengths = length * scale * shares
    judged, directions, made = 0.0, None, None
    sizes = usual_sizes(
        np.mean(np.concatenate([as_they_are, gradients[:, as_they_are.shape[1] :]], axis=1) ** 2, axis=2), memory
    )[0]
    moves, recent = np.zeros((count, outer.size)), np.zeros(count)
    factors, evidence = np.ones_like(outer), np.zeros((3, outer.size))
    path = [outer]
    end = outer
    for t, candidates in enumerate(gradients):
        judge = candidates[0] if through is None else through(end, candidates[0])
        square = np.sum(judge**2)
        judged = 0.95 * judged + 0.05 * (min(square, 9 * judged / (1 - 0.95**t)) if t else square)
        usual = np.sqrt(judged / (1 - 0.95 ** (t + 1)))
        if t in changes:
            moves, evidence = np.zeros_like(moves), np.zeros_like(evidence)
            recent *= 0.8
        elif directions is not None:
            for k in range(count):
                moves[k] = directions[k] * made + trace * moves[k]
                if through is not None:
                    moves[k] = through(end, moves[k])
            if not cautious:
                total = lengths @ moves
                shares = -judge * total / (np.linalg.norm(judge) * np.linalg.norm(total))
                part = min(1, np.linalg.norm(judge) / usual) * shares
                beyond = part - shares.sum() * np.abs(part)
                evidence = 0.98 * evidence + [part, beyond, part**2]
                for j in range(outer.size):
                    certain = np.abs(evidence[:2, j]) > 3 * np.sqrt(evidence[2, j])
                    if certain.all() and evidence[0, j] * evidence[1, j] > 0:
                        factors[j] *= 2.0 ** np.sign(evidence[0, j])
                        evidence[:, j] = 0
            for k in range(count):
                size = np.linalg.norm(judge) * np.linalg.norm(moves[k])
                cosine = -(judge @ moves[k]) / size if size > 0 else 0.0
                cosine *= min(1, np.linalg.norm(judge) / usual)
                recent[k] = 0.8 * recent[k] + 0.2 * cosine
                speed = max(adaptation, 1 / np.sqrt(1 + t), 0.3 * recent[k] ** 2)
                lengths[k] *= np.exp(speed * cosine)
        longest = (0.3 if cautious else 1.0) * max(scale * np.sqrt(outer.size), np.linalg.norm(outer))
        lengths = np.minimum(lengths, longest / np.sqrt(outer.size))
        directions = -candidates / sizes[t][:, None] * factors
        planned = lengths @ directions
        shorter = min(1, longest / np.linalg.norm(planned))
        end = outer + shorter * planned
        following = project(end)
        lengths, planned = (shorter * lengths, shorter * planned) if cautious else (lengths, planned)
        made = np.clip((following - outer) / planned, 0, 1) if through is None else 1.0
        outer = following
        path.append(outer)
    return np.array(path), lengths, factors


def usual_sizes(squares, memory):
    """u and s of every round from mean squares (rounds, k): means over fifty and a thousand rounds or so, in which no
    round counts more than three and nine times, and u no less than a sixth of s."""
    usual, long = [squares[0]], [squares[0]]
    for t in range(1, len(squares)):
        long.append(long[-1] + max(1 - memory, 1 / (t + 1)) * (np.minimum(squares[t], 9 * long[-1]) - long[-1]))
        bounded = squares[t] if t < 10 else np.minimum(squares[t], 3 * usual[-1])
        mean = usual[-1] + max(0.02, 1 / (t + 1)) * (bounded - usual[-1])
        usual.append(np.maximum(mean, long[-1] / 36))
    return np.sqrt(usual), np.sqrt(long)


def counted(gradients, memory):
    """How much each round counts: those with gradients that are much larger than usual, and than their neighbours' or
    far from these, count less."""
    sizes = np.sqrt(np.mean(gradients**2, axis=2))
    usual, long = usual_sizes(sizes**2, memory)
    relative = [np.append([1.0] * 3, np.max(sizes[1:] / known[:-1], axis=1)) for known in (usual, long)]
    m, n = (np.maximum(3, np.median([each[t : t + 3] for t in range(len(gradients))], axis=1)) for each in relative)
    r = relative[0][2:]
    earlier = np.concatenate([np.zeros_like(gradients[:1]), gradients])
    apart = [
        np.sqrt(np.mean((gradients[1:] - old) ** 2, axis=2) / 2) / usual[:-1] for old in (earlier[1:-1], earlier[:-2])
    ]
    q = np.append(1.0, np.minimum(*np.max(apart, axis=2)))
    q = np.maximum(q, 1e-300)
    return np.minimum(1, m / r) ** 2 * np.minimum(1, n / m) * np.minimum(1, 10 / q) ** 2


def moved(gradients, start, project=lambda outer: outer, project_in_steps=None, changes=None, **options):
    """The same by the library."""
    steps = sf.adaptive_steps(candidates=gradients.shape[1], project=project_in_steps, **options)

    def one(carry, inputs):
        outer, state = carry
        t, candidates = inputs
        changed = None if changes is None else jnp.isin(t, jnp.asarray(changes))
        change, state = steps.update(
            candidates[-1], state, outer, candidates=Candidates(tuple(candidates), candidates[0], changed)
        )
        outer = project(outer + change)
        return (outer, state), outer

    start = jnp.asarray(start)
    (_, state), path = jax.jit(lambda g: jax.lax.scan(one, (start, steps.init(start)), (jnp.arange(len(g)), g)))(
        jnp.asarray(gradients)
    )
    return np.concatenate([start[None], path]), state


def draw(seed=0, count=3, size=4):
    generator = np.random.default_rng(seed)
    common = np.cumsum(generator.normal(size=(ROUNDS, 1, size)), axis=0)
    return common + generator.normal(size=(ROUNDS, count, size))
