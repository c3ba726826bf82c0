"""The JAX environments against gymnasium's CartPole-v1, and the adapter against gymnasium's own checks."""

import subprocess
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from probe import Probe

from smoothfbo.environments import cartpole
from smoothfbo.environments.gymnasium import NAME
from smoothfbo.environments.picture import draw

ADAPTER = f"smoothfbo.environments.gymnasium:{NAME}"


def recorded_steps(count):
    """Random steps of gymnasium's CartPole-v1; every twentieth episode is balanced long enough for the time limit."""
    environment, generator = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    rows = []
    episode = 0
    while len(rows) < count:
        observation, _ = environment.reset(seed=episode)
        steps, done = 0, False
        while not done:
            before = np.array(environment.unwrapped.state, np.float64)
            balanced = int(observation @ np.array([0.1, 0.3, 1.0, 0.5]) > 0)
            action = balanced if episode % 20 == 0 else int(generator.integers(2))
            observation, _, terminated, truncated, _ = environment.step(action)
            after = np.array(environment.unwrapped.state, np.float64)
            rows.append((before, steps, action, after, terminated, truncated))
            steps, done = steps + 1, terminated or truncated
        episode += 1
    return [np.array(column) for column in zip(*rows[:count], strict=True)]


@pytest.fixture(scope="module")
def recording():
    return recorded_steps(10_000)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 3e-7)])
def test_dynamics_and_endings_equal_gymnasium(recording, dtype, tolerance):
    before, steps, action, after, terminated, truncated = recording
    assert terminated.sum() > 100
    assert truncated.sum() >= 3
    state = cartpole.CartPoleState(jnp.asarray(before, dtype), jnp.asarray(steps, jnp.int32))
    environment = cartpole.CartPole(reward_low=-1.0, reward_high=1.0)
    step = jax.jit(jax.vmap(environment.step, in_axes=(0, 0, None)))
    following, outcome = step(state, jnp.asarray(action), jnp.asarray(0))
    np.testing.assert_allclose(following.observation, after, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(outcome.terminated, terminated)
    np.testing.assert_array_equal(outcome.truncated, truncated)
    np.testing.assert_array_equal(outcome.reward, 1)
    assert following.angle.dtype == outcome.reward.dtype == dtype


def test_episodes_free_run_in_single_precision(recording):
    """The pole is unstable, so that rounding grows exponentially; over forty steps it stays small."""
    before, steps, action, after, _, _ = recording
    environment = cartpole.CartPole()

    def free(state, row):
        first, steps, action = row
        fresh = cartpole.CartPoleState(first, steps)
        state = jax.tree.map(lambda a, b: jnp.where(steps == 0, a, b), fresh, state)
        state, _ = environment.step(state, action, jnp.asarray(0))
        return state, environment.observe(state)

    rows = (jnp.asarray(before, jnp.float32), jnp.asarray(steps, jnp.int32), jnp.asarray(action))
    zero = environment.reset(jnp.full(4, 0.5, jnp.float32))
    _, seen = jax.jit(lambda zero, rows: jax.lax.scan(free, zero, rows))(zero, rows)
    early = steps < 40
    assert early.sum() > 4000
    np.testing.assert_allclose(seen[early], after[early], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("angle", "reward"), [(-0.11, 0), (-0.09, 1), (0.0, 1), (0.19, 1), (0.21, 0)])
def test_reward_is_paid_for_the_angle_after_the_step(angle, reward):
    environment = cartpole.CartPole(reward_low=-0.1, reward_high=0.2)
    state = cartpole.CartPoleState(jnp.array([0.0, 0.0, angle - 1.0, 50.0]), jnp.asarray(0))
    following, outcome = environment.step(state, jnp.asarray(0), jnp.asarray(0))
    assert following.angle == pytest.approx(angle)
    assert outcome.reward == reward


def test_everything_drifts_and_derived_constants_follow():
    names = cartpole.Parameters._fields
    environment = cartpole.CartPole(**{name: cartpole.Linear(i + 1.0, i + 3.0, 100) for i, name in enumerate(names)})
    for time, share in ((0, 0.0), (25, 0.25), (100, 1.0), (1000, 1.0)):
        now = environment.parameters(jnp.asarray(time))
        np.testing.assert_allclose(now, [i + 1 + 2 * share for i in range(len(names))])
        assert now.total_mass == pytest.approx(4 + 5 + 4 * share)
        assert now.pole_mass_length == pytest.approx((5 + 2 * share) * (6 + 2 * share) / 2)
    any_function = cartpole.CartPole(gravity=lambda time: 9.8 + jnp.sin(time.astype(float)))
    assert any_function.parameters(jnp.asarray(2)).gravity == pytest.approx(9.8 + np.sin(2))


@pytest.mark.parametrize("name", ["gravity", "cart_mass", "pole_mass", "pole_length", "force"])
def test_changed_physics_equals_gymnasium_with_the_same_physics(name):
    reference = gymnasium.make("CartPole-v1").unwrapped
    values = {"gravity": 7.0, "cart_mass": 1.7, "pole_mass": 0.3, "pole_length": 1.6, "force": 6.0}
    reference.reset(seed=3)
    theirs = {"gravity": "gravity", "cart_mass": "masscart", "pole_mass": "masspole", "force": "force_mag"}
    if name == "pole_length":
        reference.length = values[name] / 2
    else:
        setattr(reference, theirs[name], values[name])
    reference.total_mass = reference.masspole + reference.masscart
    reference.polemass_length = reference.masspole * reference.length
    environment = cartpole.CartPole(**{name: values[name]})
    state = cartpole.CartPoleState(jnp.asarray(reference.state), jnp.asarray(0, jnp.int32))
    for action in (0, 1, 1, 0, 1):
        reference.step(action)
        state, _ = environment.step(state, jnp.asarray(action), jnp.asarray(0))
    np.testing.assert_allclose(state.observation, reference.state, rtol=1e-12)


def test_first_states_fill_the_box():
    states = jax.jit(jax.vmap(cartpole.CartPole().reset))(jax.random.uniform(jax.random.key(0), (4000, 4)))
    for part in states.observation.T:
        assert part.min() == pytest.approx(-0.05, abs=1e-3)
        assert part.max() == pytest.approx(0.05, abs=1e-3)
        assert part.mean() == pytest.approx(0, abs=2e-3)


def test_probe_pays_only_on_the_right_side_and_ends():
    environment = Probe()
    for start in (0.2, 0.8):
        for first in (0, 1):
            for second in (0, 1):
                state = environment.reset(jnp.asarray([start]))
                state, outcome = environment.step(state, jnp.asarray(first), jnp.asarray(0))
                assert (outcome.reward, outcome.terminated, outcome.truncated) == (0, False, False)
                state, outcome = environment.step(state, jnp.asarray(second), jnp.asarray(1))
                assert (outcome.reward, outcome.terminated, outcome.truncated) == (first, True, False)


@pytest.mark.filterwarnings("ignore:.*Box observation space m.*")  # as CartPole-v1: velocities are unbounded
def test_adapter_passes_the_checks_of_gymnasium():
    check_env(gymnasium.make(ADAPTER, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize(
    ("imports", "name"),
    [
        ("import gymnasium, smoothfbo.environments", NAME),
        ("import smoothfbo.environments, gymnasium", NAME),
        pytest.param("import gymnasium, smoothfbo", f"smoothfbo.environments:{NAME}", marks=pytest.mark.thorough),
        pytest.param("import smoothfbo, gymnasium", f"smoothfbo.environments:{NAME}", marks=pytest.mark.thorough),
        ("import gymnasium", f"smoothfbo.environments:{NAME}"),
    ],
)
def test_adapter_is_found_by_its_name_and_loads_no_jax_before(imports, name):
    """Whatever is imported first."""
    code = f"""
{imports}
import sys
assert "jax" not in sys.modules
print(gymnasium.make({name!r}).spec.max_episode_steps)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "500", result.stderr


def test_the_library_alone_registers_nothing():
    """Neither order of imports may matter."""
    for imports in ("gymnasium, smoothfbo", "smoothfbo, gymnasium"):
        code = f"import {imports}; assert {NAME!r} not in gymnasium.registry"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr


def test_times_may_be_plain_numbers_and_nonsense_is_refused():
    environment = cartpole.drifting(1000)
    _, outcome = environment.step(environment.reset(jnp.full(4, 0.5)), 1, 500)
    assert outcome.reward == 1
    with pytest.raises(ValueError, match="duration must be a positive number of steps, got 0"):
        cartpole.drifting(0)
    with pytest.raises(ValueError, match="reward_low must be below reward_high"):
        cartpole.CartPole(reward_low=0.3, reward_high=-0.3)


def test_environments_need_no_gymnasium():
    code = "import sys; sys.modules['gymnasium'] = None; import smoothfbo, smoothfbo.environments.cartpole"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_adapter_drifts_over_episodes_and_starts_anew_with_a_seed():
    environment = gymnasium.make(ADAPTER, duration=10).unwrapped
    _, info = environment.reset(seed=0)
    assert (info["reward_low"], info["reward_high"]) == pytest.approx(cartpole.FIRST_INTERVAL)
    environment.step(0)
    for _ in range(5):
        environment.step(1)
    _, info = environment.reset()
    assert info["time"] == 6
    expected = [a + 0.6 * (b - a) for a, b in zip(cartpole.FIRST_INTERVAL, cartpole.LAST_INTERVAL, strict=True)]
    assert (info["reward_low"], info["reward_high"]) == pytest.approx(tuple(expected))
    assert environment.reset(options={"time": 100})[1]["reward_high"] == pytest.approx(cartpole.LAST_INTERVAL[1])
    assert environment.reset(seed=0)[1]["time"] == 0
    stationary = gymnasium.make(ADAPTER, duration=None).unwrapped
    info = stationary.reset(options={"time": 10**6})[1]
    assert (info["reward_low"], info["reward_high"]) == pytest.approx(cartpole.FIRST_INTERVAL)


def test_picture_shows_band_pole_and_cart():
    green, pole, cart = (190, 235, 190), (202, 152, 101), (40, 40, 40)

    def centre(picture, colour):
        return np.argwhere((picture == colour).all(-1))[:, 1].mean()

    left, right = draw(0.0, -0.05, -0.2, 0.06), draw(1.0, 0.05, -0.06, 0.2)
    assert left.shape == (400, 600, 3)
    assert left.dtype == np.uint8
    assert centre(left, green) < 299 < centre(right, green) - 100
    assert centre(left, pole) < 299 < centre(right, pole) - 100
    assert centre(right, cart) - centre(left, cart) == pytest.approx(100, abs=1)
    assert not (draw(0.0, 0.1, -0.2, 0.06) == green).all(-1).any()


@pytest.mark.parametrize("arguments", [{"render_mode": "human"}, {"duration": 0}])
def test_adapter_refuses_what_it_cannot_do(arguments):
    from smoothfbo.environments.gymnasium import DriftingCartPole

    with pytest.raises(ValueError, match=next(iter(arguments))):
        DriftingCartPole(**arguments)


def test_adapter_needs_a_reset_and_an_action():
    environment = gymnasium.make(ADAPTER).unwrapped
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(0)
    environment.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="got 2"):
        environment.step(2)
