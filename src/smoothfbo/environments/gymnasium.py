"""The drifting CartPole for gymnasium: `gymnasium.make("smoothfbo.environments:smoothfbo/DriftingCartPole-v1")`.

After `import smoothfbo.environments` the name after the colon is enough; jax comes in only when an environment is made.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import register, registry

from smoothfbo.environments.picture import draw

NAME = "smoothfbo/DriftingCartPole-v1"
STEP_LIMIT = 500


class DriftingCartPole(gymnasium.Env[np.ndarray, int | np.integer]):
    """CartPole-v1 that pays 1 while the pole's angle is inside an interval, which moves over `duration` steps.

    **Arguments:**

    - `duration`: steps over which the interval moves from its first to its last place; None keeps it where it is.
    - `environment`: a `smoothfbo.environments.cartpole.CartPole` of your own, with any drift, in place of that.
    - `render_mode`: "rgb_array" or None. The picture shows the rewarded band of angles behind the pole.

    The drift runs on from episode to episode; `reset(seed=...)` starts it anew, `reset(options={"time": 1000})` sets
    it. `info` has the time and the interval of the step.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 50}  # noqa: RUF012

    def __init__(self, duration: int | None = 1_000_000, environment: Any = None, render_mode: str | None = None):
        import jax

        from smoothfbo.environments import cartpole

        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}.")
        if duration is not None and not duration > 0:
            raise ValueError(f"duration must be a positive number of steps or None, got {duration!r}.")
        if environment is None:
            environment = cartpole.CartPole() if duration is None else cartpole.drifting(duration)
        self.render_mode = render_mode
        high = np.array([2 * cartpole.POSITION_LIMIT, np.inf, 2 * cartpole.ANGLE_LIMIT, np.inf], np.float32)
        self.observation_space = gymnasium.spaces.Box(-high, high, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(environment.actions)
        self._reset, self._step = jax.jit(environment.reset), jax.jit(environment.step)
        self._parameters = jax.jit(environment.parameters)
        self._state: Any = None
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if seed is not None:
            self._time = 0
        self._time = int((options or {}).get("time", self._time))
        self._state = self._reset(self.np_random.uniform(size=4).astype(np.float32))
        return self._observation(), self._info()

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("Call reset before step.")
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action must be 0 (left) or 1 (right), got {action!r}.")
        self._state, outcome = self._step(self._state, np.int32(action), np.int32(self._time))
        info = self._info()  # of the moment at which the reward was given
        self._time += 1
        return self._observation(), float(outcome.reward), bool(outcome.terminated), bool(outcome.truncated), info

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.render_mode is None or self._state is None:
            return None
        now = self._parameters(np.int32(self._time))
        return draw(
            float(self._state.position), float(self._state.angle), float(now.reward_low), float(now.reward_high)
        )

    def _observation(self) -> np.ndarray:
        return np.array(self._state.observation, np.float32)

    def _info(self) -> dict[str, Any]:
        now = self._parameters(np.int32(self._time))
        return {"time": self._time, "reward_low": float(now.reward_low), "reward_high": float(now.reward_high)}


if NAME not in registry:
    register(NAME, entry_point=f"{__name__}:DriftingCartPole", max_episode_steps=STEP_LIMIT)
