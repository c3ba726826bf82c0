"""Bands: the formulas in NumPy, and coverage on streams that drift, jump, change their noise and have heavy tails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from smoothfbo.stream.learner import intervals as bands

LEVELS = np.array([0.5, 0.8, 0.95])
EDGES = np.array([0.025, 0.1, 0.25, 0.75, 0.9, 0.975])
ROWS, MOST_STREAMS = 5_000, 10
# One program for many streams: the first axis is the stream's.
run = jax.jit(jax.vmap(bands.add_rows, in_axes=(0, 0, 0, None)))


def edges(residuals, horizon=1, predictions=None):
    """The edges for streams × rows of residuals, around predictions of 0 if there are none."""
    predictions = np.zeros_like(residuals) if predictions is None else predictions
    streams, rows = residuals.shape
    room = np.zeros((2, MOST_STREAMS, ROWS))  # one shape for all tests
    room[:, :streams, :rows] = predictions, predictions + residuals
    start = jax.tree.map(lambda leaf: jnp.stack([leaf] * MOST_STREAMS), bands.empty_intervals(horizon))
    return np.asarray(run(start, *room, jnp.asarray(rows, jnp.int32))[1])[:streams, :rows]


def isotonic(values):
    """Pool adjacent violators."""
    groups = []
    for value in values:
        groups.append([value])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return np.array([np.mean(group) for group in groups for _ in group])


def reference(residuals, horizon):
    """From the module's formulas, one row after the other."""
    memories = np.array([8, 32, 128, 512])
    scale, shape = np.zeros(4), np.tile(np.array([-1.95996398, -1.28155157, -0.67448975]) * np.sqrt(np.pi / 2), (4, 1))
    shape = np.concatenate([shape, -shape[:, ::-1]], axis=1)
    loss, usual, offset, known, given, scales = np.zeros(4), 0.0, np.zeros(6), 0, [], []
    for row in range(len(residuals)):
        r = residuals[row - horizon] if row >= horizon else np.nan
        if not np.isnan(r):
            if not np.isnan(given[row - horizon]).any():  # else it could not be judged
                expert = scales[row - horizon][:, None] * shape
                pinball = np.where(r > expert, EDGES * (r - expert), (1 - EDGES) * (expert - r)).mean(axis=1)
                usual = 0.995 * usual + 0.005 * pinball.mean() if usual else pinball.mean()
                loss = 0.995 * loss + np.minimum(pinball / usual, 10)
                shape = shape + max((100 + known) ** -0.5, 0.02) * (EDGES - (r < expert))
                offset = offset + 0.04 * (EDGES - (r < given[row - horizon]))
            size = np.minimum(abs(r), 32 * scale) if known else abs(r)
            scale = scale + (size - scale) / np.minimum(memories, known + 1)
            known += 1
        scales.append(scale)
        weights = np.exp(-loss) / np.exp(-loss).sum()
        mixture = weights @ (scale[:, None] * shape)
        given.append(isotonic(mixture + (weights @ scale) * offset) if known else np.full(6, np.nan))
    return np.array(given)


@pytest.mark.parametrize("horizon", [1, 3, 64])
def test_edges_are_those_of_the_formulas(horizon):
    random = np.random.default_rng(0)
    residuals = random.standard_t(2, size=(2, 400)) * np.exp(np.arange(400) % 90 / 30)
    residuals[0, 100:130] = np.nan  # targets that are missing
    residuals[1, 200] = 1e6
    predictions = random.normal(size=(2, 400))
    expected = np.stack([reference(stream, horizon) for stream in residuals]) + predictions[..., None]
    np.testing.assert_allclose(edges(residuals, horizon, predictions), expected, rtol=1e-6, atol=1e-6)
    assert np.isnan(expected[:, :horizon]).all()
    assert not np.isnan(expected[:, horizon:]).any()


def streams():
    """Residuals of ROWS rows, by what is difficult about them."""
    random, row = np.random.default_rng(1), np.arange(ROWS)
    normal = random.normal(size=(8, ROWS))
    level = np.where(row % 500 < 60, 10 * np.exp(-(row % 500) / 20), 0)  # what remains while a predictor recovers
    walk = np.zeros(ROWS)
    for t in range(1, ROWS):
        walk[t] = 0.98 * walk[t - 1] + 0.2 * normal[7, t]
    return {
        "stationary": normal[0],
        "t3": random.standard_t(3, size=ROWS),
        "Cauchy": random.standard_cauchy(size=ROWS),
        "lognormal": np.exp(normal[1]) - np.exp(0.5),
        "jumps": normal[2] + level,
        "jumps of the noise": normal[3] * np.where(row // 1000 % 2, 10, 1),
        "noise by the hour": normal[4] * np.exp(np.sin(2 * np.pi * row / 48)),
        "stochastic volatility": normal[5] * np.exp(walk),
        "trend": normal[6] + row / 500,
        "long without noise": np.where(row < 3_000, 0, normal[6]),
    }


@pytest.fixture(scope="module")
def covered():
    """Coverage of the three bands and their mean widths, by horizon and stream."""
    found = {}
    residuals = np.stack(list(streams().values()))
    for horizon in (1, 48):
        given = edges(residuals, horizon)
        assert (np.diff(given[:, horizon:], axis=2) >= 0).all()  # nested
        for name, stream, rows in zip(streams(), residuals, given, strict=True):
            one = bands.nested_bands(rows)
            inside = (one[..., 0] <= stream[:, None]) & (stream[:, None] <= one[..., 1])
            found[horizon, name] = inside, one[..., 1] - one[..., 0]
    return found


@pytest.mark.parametrize("horizon", [1, 48])
@pytest.mark.parametrize("name", [name for name in streams() if name != "long without noise"])
def test_coverage_is_within_a_point_of_what_was_promised(covered, name, horizon):
    inside, _ = covered[horizon, name]
    np.testing.assert_allclose(inside[horizon:].mean(axis=0), LEVELS, atol=0.01)


def test_after_a_long_time_without_noise_the_bands_are_back_soon(covered):
    inside, _ = covered[1, "long without noise"]
    assert (inside[3_100:4_100].mean(axis=0) > LEVELS - 0.05).all()
    assert (inside[3_100:].mean(axis=0) < LEVELS + 0.05).all()


def test_bands_are_as_wide_as_the_noise_asks_for(covered):
    _, widths = covered[1, "stationary"]
    np.testing.assert_allclose(widths[1_000:].mean(axis=0), [2 * 0.6745, 2 * 1.2816, 2 * 1.96], rtol=0.05)
    _, widths = covered[1, "jumps of the noise"]
    quiet, loud = widths[2_300:3_000].mean(axis=0), widths[3_300:4_000].mean(axis=0)
    np.testing.assert_allclose(loud / quiet, 10, rtol=0.25)


def test_skewed_residuals_have_skewed_bands():
    stream = streams()["lognormal"][None]
    low, high = np.moveaxis(bands.nested_bands(edges(stream)[0, 1_000:]).mean(axis=0), 1, 0)
    expected = np.quantile(stream, EDGES)
    np.testing.assert_allclose([*low[::-1], *high], expected, atol=0.15 * np.ptp(expected))
    assert high[2] > -2 * low[2]
