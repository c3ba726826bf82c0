"""What a round of the recommended SmoothFBO costs, against FBO with the inner network of the testbed.

Eight lanes in one scan, as the arena runs them; beside it FBO with solved functions, and the longest window alone.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks import measure

if TYPE_CHECKING:
    from smoothfbo.harness.charts import Chart

LANES, WINDOW = 8, 16
METHODS = ("fbo", "fbo-solved", f"replayed-{WINDOW}", "recommended")


def algorithm(testbed: Any, method: str) -> Any:
    import optax

    import smoothfbo as sf

    if method == "recommended":
        return sf.smooth_fbo(testbed.problem(), testbed.linear(), project=testbed.project)
    linear = testbed.linear()
    estimator = sf.Functional(testbed.inner(), testbed.adjoint()) if method == "fbo" else sf.Functional(linear, linear)
    if method.startswith("replayed"):
        estimator = sf.Replayed(estimator, WINDOW)
    return sf.Online(testbed.problem(), estimator, optax.sgd(0.1), testbed.project)


def program(testbed: Any, method: str, rounds: int) -> Callable[[], Any]:
    """All lanes, from the first round to the last."""
    import jax

    import smoothfbo as sf

    online = algorithm(testbed, method)

    def lane(key: Any) -> Any:
        final, _ = sf.run(online, testbed.source(), testbed.initial(), rounds=rounds, key=key, record=_nothing)
        return final.learner.outer

    compiled, keys = jax.jit(jax.vmap(lane)), jax.random.split(jax.random.key(0), LANES)
    return lambda: jax.block_until_ready(compiled(keys))


def _nothing(state: Any, info: Any) -> None:
    del state, info


def run(quick: bool) -> measure.Result:
    from smoothfbo.testbeds import InstrumentalVariables, MovingSources, SinusoidFamilies

    testbeds = {"sources": MovingSources(), "instruments": InstrumentalVariables(), "families": SinusoidFamilies()}
    rounds, repetitions = (50, 3) if quick else (200, 9)
    ratios, cases = [], []
    for name, testbed in testbeds.items():
        seconds = measure.in_turns({m: program(testbed, m, rounds) for m in METHODS}, repetitions)
        for method in METHODS:
            each = [value / (rounds * LANES) for value in seconds[method]]
            cases.append({"problem": name, "method": method, **measure.summary(each)})
            if method != "fbo":
                ratios.append(measure.ratio(f"a round, {name}", method, "fbo", seconds[method], seconds["fbo"]))
    return measure.Result(ratios, cases)


def charts(result: measure.Result) -> list["Chart"]:
    """The table says it all."""
    del result
    return []
