"""What the loop carries from round to round, and what it tells about a round."""

from typing import Any, NamedTuple, NoReturn

from jaxtyping import Array, Bool, Float, Int, PyTree, UInt32

from smoothfbo.monitor import Monitor
from smoothfbo.views.frames import trace_frame


def _renamed(owner: str, old: str, new: str) -> property:
    """A property for a field that has another name now."""

    def fail(self: Any) -> NoReturn:
        del self
        raise AttributeError(f"{owner}.{old} is called {owner}.{new} since version 1.0.")

    return property(fail)


class State(NamedTuple):
    """All that the next round needs. Plain arrays only: save it with any tool, resume to the same bits."""

    round: Int[Array, ""]  # rounds done so far, i.e. the index t of the next one, from 0
    key: UInt32[Array, "words"]  # randomness of round t is fold_in(key, t)
    outer: PyTree  # λ_t
    estimator: PyTree  # its warm state; `estimator.inner` is the inner function, where there is one
    optimiser: PyTree
    skipped: Int[Array, ""]  # rounds whose update was not finite
    monitor: Monitor | None  # of the work that the moves of λ do

    hypergradient = _renamed("State", "hypergradient", "estimator")


class Info(NamedTuple):
    """What one looks at after a round. A trace is the same with a first axis over rounds.

    - `round`: the index t, from 0.
    - `outer`: the λ_t that was played, before the update.
    - `gradient`, `smoothed`: ĝ_t and g̃_t, before and after smoothing; None in a trace unless `record` keeps them.
    - `gradient_norm`, `smoothed_norm`, `explicit_norm`, `implicit_norm`: Euclidean norms of ĝ_t, g̃_t and of the two
      terms of ĝ_t (NaN where the estimator does not separate them, as in unrolling).
    - `inner_loss`, `outer_loss`: means on the round's data after the inner fit.
    - `inner_residual`: ‖∇_θ L_in(θ̂)‖ / ‖J_θ̂ᵀ ∂_v ℓ_in(λ, 0)‖; 0 is solved, 1 is no better than ĥ = 0, NaN is no inner
      function. If it stays large: more inner steps, a larger rate, more Newton `steps` of a `Linear`.
    - `adjoint_residual`: ‖∇L_adj(â)‖ / ‖∇L_adj(0)‖; 0 is solved, 1 is no better than â = 0, NaN is no adjoint. If it
      stays large: more adjoint steps, more iterations or a ridge for the linear solve.
    - `converged`: True where both residuals of this round are at most 0.01 (those that there are),
      `ConjugateGradient` reached its own tolerance, and the round was not skipped. A few warm-started steps a round
      rarely get there: False is then no failure, but the residuals say how biased ĝ_t may be.
    - `finite`: False where the round was skipped; `skipped` counts these rounds so far.
    - `oscillating`: True where the moves of λ have raised the outer objective by ten times what they had lowered it
      before (Σ ½⟨ĝ_t + ĝ_{t+1}, λ_{t+1} − λ_t⟩, drift left out): they answer too strongly or too late. Shrink the step
      or the window: with plain steps, α·L·w must stay below 4.9.
    """

    round: Int[Array, "..."]
    outer: PyTree
    gradient: PyTree | None
    smoothed: PyTree | None
    gradient_norm: Float[Array, "..."]
    smoothed_norm: Float[Array, "..."]
    explicit_norm: Float[Array, "..."]
    implicit_norm: Float[Array, "..."]
    inner_loss: Float[Array, "..."]
    outer_loss: Float[Array, "..."]
    inner_residual: Float[Array, "..."]
    adjoint_residual: Float[Array, "..."]
    converged: Bool[Array, "..."]
    finite: Bool[Array, "..."]
    skipped: Int[Array, "..."]
    oscillating: Bool[Array, "..."]

    def to_pandas(self) -> Any:
        """A trace as a pandas DataFrame: one row a round, one column a number.

        Vectors take a column for each entry: `outer[0]`, or `outer.weight[0, 1]` for a λ with an entry "weight". The
        index is `round`; where the trace has an axis over lanes before that of the rounds it is `lane` and `round`.
        """
        return trace_frame(self)

    hypergradient = _renamed("Info", "hypergradient", "gradient")
    used = _renamed("Info", "used", "smoothed")
    hypergradient_norm = _renamed("Info", "hypergradient_norm", "gradient_norm")
    used_norm = _renamed("Info", "used_norm", "smoothed_norm")


class RunState(NamedTuple):
    """All that a run needs to continue: the learner's state (λ is `learner.outer`), the source's state and its key."""

    learner: State
    source: PyTree
    key: UInt32[Array, "words"]

    stream = _renamed("RunState", "stream", "source")

    @property
    def outer(self) -> NoReturn:
        raise AttributeError("A RunState has λ in state.learner.outer.")


def require_state(state: Any) -> State:
    """Raise if it is not the learner's state: a run's state, a trace and λ itself are easily taken for it."""
    if isinstance(state, State):
        return state
    hint = "; that of a run is state.learner" if isinstance(state, RunState) else ""
    raise TypeError(f"state must be the State that init or step returned{hint}, got a {type(state).__name__}.")
