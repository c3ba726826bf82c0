"""Breaks the library on purpose, one place at a time, and shows that a test fails each time: `make mutants`.

Each mutation is (file, old text, new text, test files that must notice). The library is copied to a temporary folder,
which is put before the installed one on the path; the working tree is never touched.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent

HYPERGRADIENTS, METHODS, STEPS, SMOOTHING, ONLINE, FINITE, PROTOCOL, PENALTIES, OPTIMISERS, MONITOR, TRAPS, RANDOM = (
    "library/test_hypergradients.py",
    "library/test_online_methods.py",
    "library/test_steps.py",
    "library/test_smoothing.py",
    "library/test_online.py",
    "library/test_finite_rounds.py",
    "testbeds/test_protocol.py",
    "library/test_penalties.py",
    "library/test_optimisers.py",
    "library/test_monitor.py",
    "library/test_traps.py",
    "library/test_random_networks.py",
)
PADDING, RUNS = "library/test_padding.py", "library/test_runs.py"

MUTATIONS = [
    # the adjoint
    ("hypergradients/adjoints.py", "return inner_product(a, slope)", "return -inner_product(a, slope)", HYPERGRADIENTS),
    ("hypergradients/adjoints.py", "return 0.5 * inner_product(", "return inner_product(", HYPERGRADIENTS),
    ("hypergradients/adjoints.py", "unravel(-solve_small(", "unravel(solve_small(", HYPERGRADIENTS),
    ("hypergradients/adjoints.py", "values = batched(function.bind(state.params))", "values = batched(function.bind(jax.tree.map(lambda p: p / data.inner.size, state.params)))", HYPERGRADIENTS),
    ("hypergradients/functional.py", "return estimate, FunctionalState(inner, adjoint, correction)", "return estimate, FunctionalState(inner, state.adjoint, correction)", HYPERGRADIENTS),
    ("hypergradients/functional.py", "return estimate, FunctionalState(inner, adjoint, correction)", "return estimate, FunctionalState(state.inner, adjoint, correction)", HYPERGRADIENTS),
    # replay and steps that find their length
    ("hypergradients/replayed.py", "rounds = jnp.where(usable, rounds, state.rounds)", "rounds = rounds + 0", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "return new._replace(window=window, own=own, losses=losses)", "return new", FINITE),
    ("hypergradients/replayed.py", "dynamic_update_index_in_dim(kept, _finite(new), slot, 0)", "dynamic_update_index_in_dim(kept, new, slot, 0)", FINITE),
    ("hypergradients/replayed.py", "return jnp.concatenate([newest, ", "return jnp.concatenate([_finite(newest), ", "library/test_replayed.py"),
    ("hypergradients/functional.py", "isinstance(function, Linear) and identical(inner.features, function.features)", "isinstance(function, Linear)", "library/test_replayed.py"),
    ("functions/linear.py", "return samples._replace(x=Featured(samples.x, jax.vmap(self.features)(samples.x)))", "return samples", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "kept[(slot - ages[1:]) % len(kept)]", "kept[(slot - ages[1:] - 1) % len(kept)]", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "% jnp.minimum(rounds + 1, window)", "% window", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "Data(replayed.inner, prepared.outer)", "replayed", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "prepared if self.estimator.paired else Data(", "Data(", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "jnp.where(state.rounds + 1 == 2 * self.window, self.window, state.rounds + 1)", "jnp.where(state.rounds + 1 == self.window, 0, state.rounds + 1)", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "_Chosen(functions, jnp.argmin(state.losses))", "_Chosen(functions, jnp.argmax(state.losses))", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "for function in self._functions(state)]", "for function in self._functions(state)[::-1]]", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "self.own(problem, outer, window, ", "self.own(problem, outer, state.window, ", "library/test_replayed.py"),
    ("functions/linear.py", "* jnp.trace(curvature) / size", "* jnp.trace(curvature)", "library/test_replayed.py"),
    ("functions/linear.py", "gradient += damping * (flat - ravel_pytree(start)[0])", "gradient += damping * flat", "library/test_replayed.py"),
    ("functions/linear.py", "self._best([end, *shares, params], state.params", "self._best([end], state.params", "library/test_hypergradients.py"),
    ("adaptive.py", "-inner_product(gradient, direction) / jnp.where", "inner_product(gradient, direction) / jnp.where", "library/test_adaptive.py"),
    ("adaptive.py", "own = gradients[0]", "own = gradients[-1]", "library/test_adaptive.py"),
    ("adaptive.py", "kept * state.squares + (1 - kept) * means", "means", "library/test_adaptive.py"),
    ("adaptive.py", "state.mean, gradients[-1])", "state.mean, gradients[0])", "library/test_adaptive.py"),
    ("adaptive.py", "_scaled(mean, 1 / weights)", "mean", "library/test_adaptive.py"),
    ("adaptive.py", "_scaled(move, shorter), shorter * lengths", "move, lengths", "library/test_adaptive.py"),
    ("adaptive.py", "_scaled(move, shorter), shorter * lengths", "_scaled(move, shorter), lengths", "library/test_adaptive.py"),
    ("adaptive.py", "jax.tree.map(jnp.multiply, direction, shares)", "direction", "library/test_adaptive.py"),
    ("adaptive.py", "jnp.isfinite(squared_norm(gradients)) & ", "", "library/test_adaptive.py"),
    ("online.py", "optax.tree.where(finite, estimate.candidates, zeros)", "optax.tree.zeros_like(estimate.candidates)", "library/test_adaptive.py"),
    # corrections
    ("hypergradients/corrections.py", "unravel(v - solve_small(", "unravel(v + solve_small(", "library/test_corrections.py"),
    ("hypergradients/corrections.py", "return first + 0.5 * second", "return first + second", "library/test_corrections.py"),
    ("hypergradients/corrections.py", "return optax.tree.add(batched(self.inner)(xs), batched(self.correction)(xs))", "return batched(self.inner)(xs)", "library/test_corrections.py"),
    ("hypergradients/functional.py", "FunctionalState(inner, adjoint, correction)", "FunctionalState(inner, adjoint, state.correction)", "library/test_corrections.py"),
    ("hypergradients/functional.py", "or self.correction.paired", "", "library/test_corrections.py"),
    # the two terms
    ("problem.py", "return jax.grad(coupling)(outer)", "return jax.tree.map(jnp.negative, jax.grad(coupling)(outer))", HYPERGRADIENTS),
    ("problem.py", "return samples.mean(LossAt(loss", "return jnp.sum(LossAt(loss", HYPERGRADIENTS),
    ("hypergradients/functional.py", "gradient=optax.tree.add(explicit, implicit)", "gradient=implicit", HYPERGRADIENTS),
    ("hypergradients/functional.py", "return self.adjoint.paired or", "return False and", HYPERGRADIENTS),
    ("hypergradients/functional.py", "explicit = problem.explicit(outer, at_final.outer, final.outer)", "explicit = jax.grad(lambda outer: problem.outer_mean(outer, predict(self.inner, self.inner.fit(state.inner, inner_objective(problem, outer, data.inner), key_inner).params, final.outer), final.outer))(outer)", HYPERGRADIENTS),
    ("hypergradients/base.py", "source = data if data.final is None else data.final", "source = data", HYPERGRADIENTS),
    # the baselines
    ("hypergradients/parametric.py", "optax.tree.scale(-1, jax.grad(coupling)(outer))", "jax.grad(coupling)(outer)", HYPERGRADIENTS),
    ("hypergradients/implicit.py", "length=self.terms - 1", "length=self.terms", HYPERGRADIENTS),
    ("hypergradients/implicit.py", "return estimate, ImplicitState(inner, solution)", "return estimate, ImplicitState(inner, state.solution)", HYPERGRADIENTS),
    ("hypergradients/unrolled.py", "gradient, inner = jax.grad(outer_loss, has_aux=True)(outer)\n", "gradient, inner = jax.grad(outer_loss, has_aux=True)(outer)\n        inner = state\n", HYPERGRADIENTS),
    ("algebra.py", "share = new_square / square", "share = square / new_square", "library/test_algebra.py"),
    ("algebra.py", "new_square + share**2 * direction_square", "0 * new_square", "library/test_algebra.py"),
    ("functions/base.py", "function.regulariser(params))", "jnp.zeros(()))", HYPERGRADIENTS),
    ("functions/linear.py", "gradient = ridge * flat", "gradient = 0 * flat", HYPERGRADIENTS),
    # online methods of other papers
    ("hypergradients/implicit.py", "keep_start=self.tolerance is None", "keep_start=False", METHODS),
    ("hypergradients/implicit.py", "tolerance=0.0 if self.tolerance is None", "tolerance=0.5 if self.tolerance is None", METHODS),
    ("hypergradients/single_loop.py", "v - jnp.asarray(self.rate, v.dtype) * r", "v + jnp.asarray(self.rate, v.dtype) * r", METHODS),
    ("hypergradients/single_loop.py", "terms = objectives.terms(params, state.solution,", "terms = objectives.terms(self.inner.fit(state.inner, inner_objective(problem, outer, data.inner), key_inner).params, state.solution,", METHODS),
    ("hypergradients/single_loop.py", "formed_at=params, fitted=inner.params", "formed_at=inner.params, fitted=inner.params", METHODS),
    ("hypergradients/single_loop.py", "return estimate, ImplicitState(inner, solution)", "return estimate, ImplicitState(inner, state.solution)", METHODS),
    ("hypergradients/storm.py", "keep.astype(n.dtype) * (d - o)", "keep.astype(n.dtype) * d", METHODS),
    ("hypergradients/storm.py", "jnp.where(state.rounds == 0, 0, 1 - ", "jnp.where(state.rounds < 0, 0, 1 - ", METHODS),
    ("hypergradients/storm.py", "StormState(inner, solution, here, direction,", "StormState(inner, solution, here, new,", METHODS),
    ("hypergradients/storm.py", "StormState(inner, solution, here, direction,", "StormState(inner, solution, here._replace(outer=state.previous.outer), direction,", METHODS),
    ("hypergradients/storm.py", "self.inner.descend(state.inner, direction.params)", "self.inner.descend(state.inner, new.params)", METHODS),
    ("hypergradients/storm.py", "following = optax.tree.where(finite, following, state)", "pass", METHODS),
    ("hypergradients/first_order.py", "1 / sigma), data.outer)", "sigma), data.outer)", METHODS),
    ("hypergradients/first_order.py", "time ** jnp.asarray(self.growth, number)", "time ** jnp.asarray(0 * self.growth, number)", METHODS),
    ("hypergradients/first_order.py", "predict(self.inner, penalised.params, final.outer)", "predict(self.inner, inner.params, final.outer)", METHODS),
    ("hypergradients/first_order.py", "converged=estimate.converged & solved", "converged=estimate.converged", METHODS),
    ("hypergradients/reevaluated.py", "usable = jnp.isfinite(squared_norm(estimate.gradient))", "usable = jnp.asarray(True)", METHODS),
    ("hypergradients/reevaluated.py", "age < length", "age <= length", METHODS),
    ("hypergradients/reevaluated.py", "& past.usable", "", METHODS),
    ("hypergradients/reevaluated.py", "discount ** age.astype(number)", "discount ** (age - 1).astype(number)", METHODS),
    ("hypergradients/reevaluated.py", "jnp.minimum(past.rounds + 1, length)", "jnp.minimum(past.rounds, length)", METHODS),
    ("hypergradients/reevaluated.py", "eqx.combine(problem, static)", "eqx.combine(arrays, static)", METHODS),
    ("hypergradients/reevaluated.py", "past._replace(warm=warm)[1:]", "past[1:]", METHODS),
    ("hypergradients/reevaluated.py", "warm if self.refit else warm._replace(inner=newest.inner)", "warm if self.refit else warm._replace(inner=state.newest.inner)", METHODS),
    ("hypergradients/reevaluated.py", "estimator, _Fitted(self.inner))", "estimator, self.inner)", METHODS),
    ("hypergradients/reevaluated.py", "> self.slots + 1)", "> self.slots + 2)", METHODS),
    ("steps.py", "m - jnp.asarray(rate, m.dtype) * g", "m - 2 * jnp.asarray(rate, m.dtype) * g", STEPS),
    ("steps.py", "scale = _total(outer) / _total(powers)", "scale = 1 / _total(powers)", STEPS),
    ("steps.py", "jnp.exp(leaf - largest)", "jnp.exp(leaf)", STEPS),
    ("steps.py", "jnp.maximum(leaf, 2 * jnp.finfo(leaf.dtype).eps * old)", "leaf", STEPS),
    # smoothing
    ("smoothing.py", "setting.window, jnp.int32), 1, slots)", "setting.window, jnp.int32) + 1, 1, slots)", SMOOTHING),
    ("smoothing.py", "gradient_at(history, slots, slot + 1 - length)", "gradient_at(history, slots, slot - length)", SMOOTHING),
    ("sums.py", "return result, eta * error + lost", "return result, 0 * error", SMOOTHING),
    ("smoothing.py", "older = optax.tree.where(starts_block, state.recent, state.older)", "older = state.older", SMOOTHING),
    # windows that change
    ("smoothing.py", "older = optax.tree.where(changes, anew, older)", "pass", SMOOTHING),
    ("smoothing.py", "else jnp.where(changes, 0, state.position)", "else state.position", SMOOTHING),
    ("smoothing.py", "jnp.minimum(stored, length - 1), 0)", "jnp.minimum(stored, length), 0)", SMOOTHING),
    ("smoothing.py", " | (setting.discount != state.setting.discount)", "", SMOOTHING),
    ("smoothing.py", "_nan_where((window < 1) | (window > slots), averages)", "_nan_where(window < 1, averages)", SMOOTHING),
    ("smoothing.py", "_nan_where((window < 1) | (window > slots), averages)", "_nan_where(window > slots, averages)", SMOOTHING),
    ("sums.py", "gradient_at(history, slots, slot - age)", "gradient_at(history, slots, slot - age + 1)", SMOOTHING),
    ("sums.py", "lambda leaf: jnp.asarray(discount, leaf.dtype) * leaf, total)", "lambda leaf: leaf, total)", SMOOTHING),
    ("smoothing.py", "theta * new + (1 - theta) * average", "theta * average + (1 - theta) * new", SMOOTHING),
    ("smoothing.py", "jnp.minimum(stored + 1, length)", "jnp.minimum(stored, length)", SMOOTHING),
    ("smoothing.py", "averages = _nan_where(changes, averages) if constant else averages", "averages = averages", SMOOTHING),
    ("smoothing.py", "setting = state.setting if constant else setting", "setting = setting", SMOOTHING),
    # the theory
    ("regret.py", "return jax.vmap(gradient)(jnp.maximum(times - lag, 0), outers)", "return jax.vmap(gradient)(times, outers)", "library/test_regret.py"),
    ("regret.py", "counts = (times >= lag) & (lag < window)", "counts = lag < window", "library/test_regret.py"),
    ("regret.py", "tracking=jax.tree.map(jnp.subtract, historical, target)", "tracking=jax.tree.map(jnp.subtract, target, historical)", "library/test_regret.py"),
    ("regret.py", "return 2 / step * (2 * rounds", "return 2 / step * (rounds", "library/test_regret.py"),
    ("regret.py", "return 2 / step * (2 * objective_bound + drift) + error", "return 2 / step * (objective_bound + drift) + error", "library/test_regret.py"),
    ("regret.py", "drift = jnp.minimum(jnp.asarray(variation), 2 * rounds", "drift = jnp.minimum(jnp.asarray(variation), rounds", "library/test_regret.py"),
    ("testbeds/cosine.py", "return 2 * self.curvature * jnp.sum(jnp.abs(jnp.sin(", "return self.curvature * jnp.sum(jnp.abs(jnp.sin(", "library/test_regret.py"),
    ("testbeds/finite.py", "return -self._project(self.outer_error", "return self._project(self.outer_error", "testbeds/test_finite.py"),
    ("testbeds/finite.py", "(jnp.mean(second_moment * lengths) - jnp.sum(", "(jnp.mean(second_moment * lengths) + jnp.sum(", "testbeds/test_finite.py"),
    ("testbeds/finite.py", "both = self.outer_coupling * self.outer_error(round, outer, inner) + adjoint", "both = adjoint", "testbeds/test_finite.py"),
    ("testbeds/finite.py", "explicit = self.outer_coupling**2 * spread(", "explicit = 0 * spread(", "testbeds/test_finite.py"),
    ("testbeds/finite.py", "(self.coupling) - self.outer_coupling * self.coupling", "(self.coupling)", "testbeds/test_finite.py"),
    ("testbeds/regression.py", "self.truth(round - 1 - lag, x)", "self.truth(round - lag, x)", "testbeds/test_known_truth.py"),
    # the loop
    ("online.py", "outer=state.outer,\n            gradient=estimate", "outer=following.outer,\n            gradient=estimate", ONLINE),
    ("online.py", "outer = optax.tree.where(finite, outer, state.outer)", "pass", ONLINE),
    ("online.py", "self.estimator.kept(warm, state.estimator)", "warm", ONLINE),
    ("online.py", "jax.random.wrap_key_data(state.key), state.round)", "jax.random.wrap_key_data(state.key), 0)", ONLINE),
    ("online.py", "isfinite(squared_norm(gradient))", "isfinite(jax.tree.leaves(gradient)[0]).all()", ONLINE),
    ("online.py", "converged=estimate.converged & finite", "converged=estimate.converged", FINITE),
    ("online.py", "return self.estimator.predictor(learner.estimator)", "return self.estimator.predictor(self.estimator.init)", ONLINE),
    ("source.py", "return value if isinstance(value, Round) else Round(value)", "return Round(value.data if isinstance(value, Round) else value)", ONLINE),
    ("algebra.py", "jnp.where(jnp.isfinite(square), x, jnp.nan)", "x", FINITE),
    # penalties with the outer variable
    ("hypergradients/functional.py", "return jax.jvp(inner.at(outer).regulariser, (params,), (adjoint,))[1]", "return -jax.jvp(inner.at(outer).regulariser, (params,), (adjoint,))[1]", PENALTIES),
    ("hypergradients/parametric.py", "objective_value(self.function.at(outer), params", "objective_value(self.function.at(jax.lax.stop_gradient(outer)), params", PENALTIES),
    ("hypergradients/unrolled.py", "self.inner.at(outer).fit(", "self.inner.at(jax.lax.stop_gradient(outer)).fit(", PENALTIES),
    ("hypergradients/adjoints.py", "inner.module, \"adjoint\").at(outer)", "inner.function, \"adjoint\").at(jax.tree.map(lambda leaf: 0 * leaf, outer))", PENALTIES),
    ("hypergradients/first_order.py", "in_loss + penalty(penalised.params) - penalty(inner.params)", "in_loss", PENALTIES),
    ("hypergradients/base.py", "relative_residual(function.at(outer), params", "relative_residual(function.at(jax.tree.map(jnp.zeros_like, outer)), params", PENALTIES),
    ("functions/linear.py", "curvature = jnp.diag(ridge)", "curvature = 2 * jnp.diag(ridge)", PENALTIES),
    ("functions/linear.py", "return 0.5 * inner_product(params, jax", "return inner_product(params, jax", PENALTIES),
    # the optimisers and the monitor
    ("online.py", "jnp.where(finite, estimate.outer_loss, jnp.inf)", "estimate.outer_loss", OPTIMISERS),
    ("online.py", "known = {\"value\": value, \"grad\": gradient}", "known = {\"value\": 0.5 * value, \"grad\": gradient}", OPTIMISERS),
    ("smoothing.py", "state.smoother, params, **extra)", "state.smoother, params)", OPTIMISERS),
    ("monitor.py", "0.5 * (monitor.slope + inner_product(gradient, monitor.move))", "monitor.slope", MONITOR),
    ("monitor.py", "0.5 * (monitor.slope + inner_product(gradient, monitor.move))", "inner_product(gradient, monitor.move)", MONITOR),
    ("monitor.py", "jnp.nan_to_num(0.5", "jnp.asarray(0.5", MONITOR),
    ("monitor.py", "monitor.lowered + jnp.maximum(-level, 0)", "monitor.lowered", MONITOR),
    # mistakes that would run
    ("traps.py", "if not _same_constants(first.constants, second.constants):", "if False:", TRAPS),
    ("traps.py", "    if not any(first.outputs):", "    if False:", TRAPS),
    ("traps.py", "    return not fills", "    return True", TRAPS),
    ("traps.py", 'or "outer" not in operation.inputs[0]', "", TRAPS),
    ("flow.py", "outputs = _follow(called, inputs, operations)", "outputs = [frozenset()] * len(equation.outvars)", TRAPS),
    # networks that are random
    ("functions/network.py", "return eqx.nn.inference_mode(module) if self.is_random else module", "return module", RANDOM),
    ("functions/recipes.py", "keys = jax.random.split(self.key, jax.tree.leaves(xs)[0].shape[0])", "keys = jax.numpy.stack([self.key] * jax.tree.leaves(xs)[0].shape[0])", RANDOM),
    # what is called converged
    ("functions/base.py", "jnp.where(jnp.isfinite(scale), ratio(remainder, scale), jnp.nan)", "ratio(remainder, scale)", HYPERGRADIENTS),
    ("functions/base.py", "jax.grad(term.mean_at)(optax.tree.zeros_like(predictions))", "jax.grad(term.mean_at)(predictions)", HYPERGRADIENTS),
    ("hypergradients/functional.py", "(of_inner <= TOLERANCE) & ", "", HYPERGRADIENTS),
    ("hypergradients/functional.py", " & (residual <= TOLERANCE)", "", HYPERGRADIENTS),
    ("hypergradients/parametric.py", "solved & (of_inner <= TOLERANCE)", "solved", HYPERGRADIENTS),
    ("hypergradients/implicit.py", "residual <= TOLERANCE if reached is None else", "jnp.asarray(True) if reached is None else", HYPERGRADIENTS),
    ("hypergradients/base.py", "converged=residual <= TOLERANCE", "converged=jnp.isfinite(residual)", HYPERGRADIENTS),
    # weights and padding
    ("samples.py", "return jnp.sum(self.weighted(values)) / self.total(values.dtype)", "return jnp.mean(self.weighted(values))", PADDING),
    ("samples.py", "jnp.where(_beside(counts, leaf), leaf, leaf[first])", "leaf", PADDING),
    ("samples.py", "jnp.where(jnp.any(weight.astype(bool)), weight.astype(leaf.dtype), jnp.nan)", "weight.astype(leaf.dtype)", PADDING),
    ("samples.py", "jax.random.randint(key, (size,), 0, below[-1])", "jax.random.randint(key, (size,), 0, weight.size)", PADDING),
    ("samples.py", 'points, side="right")', 'points, side="left")', PADDING),
    ("functions/linear.py", "count = term.samples.total(flat.dtype)", "count = term.samples.size", PADDING),
    ("hypergradients/adjoints.py", "norm(final.inner.weighted(remainder)), norm(final.inner.weighted(slopes))", "norm(remainder), norm(slopes)", PADDING),
    ("hypergradients/adjoints.py", "Term(linear, data.outer._replace(y=slopes), is_linear=True)", "Term(linear, data.outer._replace(y=slopes, weight=None), is_linear=True)", PADDING),
    # long runs, live data, files, tables
    ("pieces.py", "jax.lax.fori_loop(0, count, one", "jax.lax.fori_loop(0, size, one", RUNS),
    ("pieces.py", "lambda leaf: leaf[:count], jax.device_get(trace)", "lambda leaf: leaf, jax.device_get(trace)", RUNS),
    ("pieces.py", "first = int(state.learner.round)", "first = 0", RUNS),
    ("pieces.py", "leaf[first : first + count]", "leaf[:]", RUNS),
    ("pieces.py", "if stop is not None and bool(stop):", "if stop is True:", RUNS),
    ("source.py", "return np.array(leaf, jnp.result_type(leaf))", "return np.asarray(leaf, jnp.result_type(leaf))", RUNS),
    ("compiled.py", "(_ARRAY, None) if _is_array(leaf) else (type(leaf), leaf)", "(_ARRAY, None) if _is_array(leaf) else (None, leaf)", RUNS),
    ("saving.py", 'text["digest"] == _digest(arrays)', "True", "library/test_saving.py"),
    ("saving.py", 'yield from _describe(content, f"{name}.{variable}", above)', "pass", "library/test_saving.py"),
    ("views/frames.py", "rows = rows.reshape(-1, *rows.shape[axes:])", "rows = rows.reshape(-1, *rows.shape[axes:])[::-1]", "library/test_views.py"),
    # the best and the bounds
    ("testbeds/simplex.py", "jnp.minimum(shares[worst], wanted)", "shares[worst]", PROTOCOL),
    ("testbeds/finite.py", "rest + weight * jnp.sin(middle) > 0", "rest > 0", PROTOCOL),
    ("testbeds/regression.py", "jnp.arange(1 - self.lags, rounds - 1)", "jnp.arange(2 - self.lags, rounds)", PROTOCOL),
    ("testbeds/regression.py", "return jnp.max(diagonals) + ", "return jnp.min(diagonals) + ", PROTOCOL),
    # problems whose answer moves
    ("testbeds/base.py", "self.objective(round, outer) - self.objective(round, self.best(round))", "self.objective(round, outer)", PROTOCOL),
    ("testbeds/drift.py", "jnp.sqrt(half / 2) * draw", "jnp.sqrt(half) * draw", "testbeds/test_drifts.py"),
    ("testbeds/drift.py", "jnp.maximum(quarters - done - self.calm, 0)", "jnp.maximum(quarters - done, 0)", "testbeds/test_drifts.py"),
    ("testbeds/line.py", "falls = function(left) > function(right)", "falls = function(left) < function(right)", PROTOCOL),
    ("testbeds/sources.py", "self.position(round) - lead", "self.position(round) + lead", "testbeds/test_sources.py"),
    ("testbeds/sources.py", "sources * shares(outer)[y[\"source\"]]", "shares(outer)[0]", PROTOCOL),
    ("testbeds/instruments.py", "(v - outer @ y.treatment) ** 2", "(v - 2 * outer @ y.treatment) ** 2", PROTOCOL),
    ("testbeds/instruments.py", "self.confounding * error @ self.confounder", "0 * error @ self.confounder", "testbeds/test_instruments.py"),
    ("testbeds/support.py", "np.sqrt(self.batch / np.bincount", "(self.batch / np.bincount", "testbeds/test_support.py"),
    ("testbeds/support.py", "/ (1 + rho * jnp.sum(inverse))", "/ (1 - rho * jnp.sum(inverse))", "testbeds/test_support.py"),
    ("testbeds/sinusoids.py", "jnp.stack([jnp.sin(phase), jnp.cos(phase)])", "jnp.stack([jnp.cos(phase), jnp.sin(phase)])", "testbeds/test_sinusoids.py"),
    ("testbeds/sinusoids.py", "self.amplitude_spread**2 / 3", "self.amplitude_spread**2", "testbeds/test_sinusoids.py"),
    ("testbeds/sinusoids.py", "+ pull * (v - outer @ phi(x.place)) ** 2", "+ 2 * pull * (v - outer @ phi(x.place)) ** 2", PROTOCOL),
    ("testbeds/corruption.py", "return -jax.grad(lambda outer: jnp.sum(slope", "return jax.grad(lambda outer: jnp.sum(slope", "testbeds/test_corruption.py"),
    ("testbeds/corruption.py", "(1 - share) * truth + share * following", "share * truth + (1 - share) * following", "testbeds/test_corruption.py"),
    ("testbeds/corruption.py", "rows] + wrong.astype(", "rows] - wrong.astype(", "testbeds/test_corruption.py"),
    # reinforcement learning
    ("studies/cartpole/soft_q.py", "* (1 - terminated) * value", "* value", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "value = self.q.soft_value(self.target, following,", "value = self.q.soft_value(self.target, y.next_observation,", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/replay.py", "outcome.terminated.astype(before.dtype)])", "ended.astype(before.dtype)])", "studies/test_cartpole_replay.py"),
    ("studies/cartpole/replay.py", "rate * (parameters - state.target)", "(1 - rate) * (parameters - state.target)", "studies/test_cartpole_replay.py"),
    # the regression and its measures
    ("studies/regression/probe.py", "- noise / draws", "+ noise / draws", "studies/test_regression.py"),
    ("studies/regression/probe.py", "explicit + problem.implicit(", "explicit - problem.implicit(", "studies/test_regression.py"),
    ("studies/regression/lanes.py", 'return self.batch if self.minibatch == "batch" else None', "return self.batch", "studies/test_regression.py"),
    ("studies/regression/theory.py", "2 / rate * terms", "1 / rate * terms", "studies/test_regression.py"),
    ("studies/cartpole/replay.py", "lambda leaf: leaf[self.batch :]", "lambda leaf: leaf[: self.batch]", "studies/test_cartpole_replay.py"),
    ("studies/cartpole/presets.py", '"bounds": {"bounded_values": True}', '"bounds": {"bounded_values": True, "clip": 1.0}', "studies/test_cartpole_program.py"),
    ("studies/theory/growth.py", "** -decay", "** decay", "studies/test_theory.py"),
    ("studies/theory/replay.py", "scale = centre + jnp.sqrt(spread) * normal, jnp.exp(spread / 2)", "scale = centre + jnp.sqrt(spread) * normal, 1.0", "studies/test_theory.py"),
    ("studies/theory/replay.py", "mean, state = self._mean().update(self.draw(round), state)", "mean = self.draw(round)", "studies/test_theory.py"),
    ("studies/theory/replay.py", "jnp.maximum(terms - 1 - lags, 0)", "jnp.maximum(terms - lags, 0)", "studies/test_theory.py"),
    ("studies/regression/measure.py", "_square(historical - target)", "_square(historical)", "studies/test_regression.py"),
    ("studies/regression/measure.py", "_exact(weighting, windowed, outers)", "_exact(weighting, now, outers)", "studies/test_regression.py"),
    ("studies/regression/measure.py", '"error_squared": _square(used - target)', '"error_squared": _square(used - gradient)', "studies/test_regression.py"),
    ("studies/regression/config.py", 'outer_rate=0.0 if method == "uniform" else', 'outer_rate=1.0 if method == "uniform" else', "studies/test_regression.py"),
    ("studies/regression/claims.py", 'return "holds" if below else "fails"', 'return "fails" if below else "holds"', "studies/test_regression.py"),
    ("harness/statistics.py", "stats.t.ppf(0.975, len(numbers) - 1) * numbers.std(ddof=1)", "1.96 * numbers.std(ddof=1)", "studies/test_regression.py"),
    ("testbeds/regression.py", "difference = values[1:] - values[:1]", "difference = values[1:]", "testbeds/test_known_truth.py"),
    # the run system
    ("harness/workers/driver.py", "failures[block.name] = 1 if chunks > reached[block.name] else", "failures[block.name] = 1 if False else", "harness/test_workers.py"),
    ("harness/workers/driver.py", "if ended.is_final:", "if False:", "harness/test_workers.py"),
    ("harness/workers/blocks.py", "numbers = jax.tree.map(lambda leaf: leaf[first:end], program.numbers)", "numbers = jax.tree.map(lambda leaf: leaf[: end - first], program.numbers)", "harness/test_workers.py"),
    ("harness/results.py", "np.concatenate([part[name] for part in records])", "np.concatenate([part[name] for part in records[::-1]])", "harness/test_workers.py"),
    ("harness/folders.py", "return is_finished(folder) and not (folder / MISSING).exists()", "return is_finished(folder)", "harness/test_workers.py"),
    ("harness/runner.py", "        return run.workers.block or size_for(study.programs, team.blocks)\n    size = folders.stored_block_size(run.folder)\n", "        return run.workers.block or size_for(study.programs, team.blocks)\n    size = run.workers.block or size_for(study.programs, team.blocks)\n", "harness/test_workers.py"),
    ("harness/chunks.py", "if done <= recorded:", "if True:", "harness/test_runner.py"),
    ("harness/chunks.py", 'keep = records["round"][0] < program.rounds', 'keep = records["round"][0] <= program.rounds', "harness/test_runner.py"),
    ("harness/checkpoints.py", "if not np.array_equal(stored, _digest(arrays)):", "if False:", "harness/test_runner.py"),
    ("harness/lanes.py", "np.repeat(values[-1:], self._width - len(values), axis=0)", "values[:0]", "harness/test_runner.py"),
    ("harness/lanes.py", "np.asarray(leaf)[first : first + self._width]", "np.asarray(leaf)[: self._width]", "harness/test_runner.py"),
    ("harness/runner.py", "if not (work / CHOICE).exists():", "if True:", "harness/test_runner.py"),
    ("harness/runner.py", "if study.sequel is None or missing:", "if study.sequel is None:", "harness/test_workers.py"),
    ("harness/workers/blocks.py", "enumerate(programs, before)", "enumerate(programs)", "harness/test_workers.py"),
    ("harness/charts.py", "return escape(text, quote=False)", "return text", "harness/test_page.py"),
    # runs over tables
    ("stream/pipeline.py", "skip, grid = self.done, config.rows_per_block", "skip, grid = 0, config.rows_per_block", "stream/test_stream_command.py"),
    # the mixture of experts of the stream
    ("stream/learner/recursive.py", "is_known.astype(rows.dtype), goals).rest", "jnp.ones(count, rows.dtype), goals).rest", "stream/test_experts.py"),
    ("stream/learner/recursive.py", "jnp.diag(1 / jnp.where(is_known, known, 1))", "jnp.eye(count)", "stream/test_experts.py"),
    ("stream/learner/recursive.py", "(past.rest[:, :count] / past.pivots[:, None]).T", "past.rest[:, :count].T", "stream/test_experts.py"),
    ("stream/learner/experts.py", "difference = level - sums[:, p + 1 :: 2, :p]", "difference = level", "stream/test_experts.py"),
    ("stream/learner/random_features.py", "jnp.sqrt(RIDGE * (1 - retention) * size / RESTORED)", "jnp.sqrt(RIDGE * (1 - retention))", "stream/test_experts.py"),
    ("stream/learner/random_features.py", "inverse = state.inverse / retention", "inverse = state.inverse", "stream/test_experts.py"),
    ("stream/learner/aggregation.py", "regrets - _bernstein_rate(after) * regrets**2", "regrets", "stream/test_experts.py"),
    ("stream/learner/aggregation.py", "jnp.maximum(state.sums, 0) / jnp.where(scale > 0, scale, 1)", "jnp.maximum(state.sums, 0)", "stream/test_experts.py"),
    ("stream/learner/aggregation.py", "return (1 - SHARE) * weights + SHARE / weights.shape[0]", "return weights", "stream/test_experts.py"),
    ("stream/learner/aggregation.py", "losses / scale, LARGEST_LOSS) / 2", "losses / scale, LARGEST_LOSS)", "stream/test_experts.py"),
    ("stream/learner/aggregation.py", "goals, known, VERY_LARGE_ERROR)", "goals, known, LARGE_ERROR)", "stream/test_experts.py"),
    ("stream/learner/aggregation.py", "large**2 * scale) for i", "large * scale) for i", "stream/test_experts.py"),
    ("stream/learner/since.py", "has_changed = losses[0] > WORSE", "has_changed = losses[0] > 4 * WORSE", "stream/test_experts.py"),
    ("stream/learner/since.py", "Since(jnp.where(has_changed, 0, state.moments)", "Since(state.moments", "stream/test_experts.py"),
    ("stream/learner/units.py", "jnp.maximum(1.0, HISTORY / jnp.maximum(range.blocks, 1).astype(target.dtype))", "1.0", "stream/test_experts.py"),
    ("stream/learner/rounds.py", "far=jnp.maximum(state.targets.far - 1, 0)", "far=state.targets.far", "stream/test_units.py"),
    ("stream/learner/stacking.py", "ridge * size + PRIOR * scale", "ridge * size", "stream/test_experts.py"),
    ("stream/learner/rounds.py", "self._predict(state, block, late is None, weight)", "self._predict(state, block, True, weight)", "stream/test_horizon.py"),
    ("stream/learner/intervals.py", "given[0])", "residual)", "stream/test_intervals.py"),
    ("stream/learner/intervals.py", "(intervals.row - intervals.horizon) % length", "(intervals.row - 1) % length", "stream/test_intervals.py"),
    ("stream/learner/intervals.py", "STEP * _slope(residual, given, levels)", "STEP * _slope(residual, edges[0], levels)", "stream/test_intervals.py"),
    ("stream/learner/intervals.py", "jax.nn.softmax(-tracker.loss)", "jax.nn.softmax(tracker.loss)", "stream/test_intervals.py"),
    ("stream/learner/intervals.py", "scales=intervals.scales.at[slot].set(tracker.scale)", "scales=intervals.scales.at[slot].set(2 * tracker.scale)", "stream/test_intervals.py"),
    ("stream/learner/calibration.py", "/ (2 * classes)", "/ classes", "stream/test_calibration.py"),
    ("stream/learner/calibration.py", "softmax(-calibration.losses)", "softmax(calibration.losses)", "stream/test_calibration.py"),
    ("stream/learner/calibration.py", "known = known * (truth @ seen.astype(truth.dtype))", "known = known * 1", "stream/test_calibration.py"),
    ("stream/learner/rounds.py", "root = mask if weight is None else jnp.sqrt(mask)", "root = mask", "stream/test_estimator_fit.py"),
    ("stream/learner/coefficients.py", "shift=units.shift - features.mean", "shift=units.shift", "stream/test_estimator_fit.py"),
    ("stream/learner/learner.py", "index // room * block + begun + index % room", "index + begun", "stream/test_estimator_fit.py"),
    ("stream/live.py", "lost, self.waiting = lost[:place], lost[place + 1 :]", "lost, self.waiting = lost[:place], []", "stream/test_live.py"),
    ("stream/live.py", "self._ahead = copy.deepcopy(self.session)", "self._ahead = self.session", "stream/test_live.py"),
    ("stream/pipeline.py", "piece = piece.slice(rows + 1)", "piece = piece.slice(rows + 2)", "stream/test_live.py"),
    ("stream/charts.py", "before = slice(max(at - 16, 0), max(at, 0))", "before = slice(max(at - 16, 0), max(at + 16, 0))", "stream/test_diagnostics.py"),
    ("stream/folder.py", "if _number(path) > self._part:", "if False:", "stream/test_stream_command.py"),
    # many series
    ("stream/segments.py", "first = np.repeat(starts[:-1], np.diff(starts))[:, None]", "first = 0", "stream/test_series.py"),
    ("stream/reading/features.py", "filled = joined.of(self._history[segments.slots].ravel(), target)", "filled = joined.of(np.roll(self._history, 1, axis=0)[segments.slots].ravel(), target)", "stream/test_series.py"),
    ("stream/groups/learners.py", "self.at[lanes] = np.where(is_waiting | is_last, at + valid, at + learn)", "self.at[lanes] = at + valid", "stream/test_series.py"),
    ("stream/groups/learners.py", "            self.learners.states[slots] = states[: len(lanes)]", "            self.learners.states[slots] = states[: len(lanes)][::-1]", "stream/test_series.py"),
    ("stream/groups/learners.py", "learnt = np.maximum(self.full - self.spec.delay, 0) * block", "learnt = np.maximum(self.full - 1, 0) * block", "stream/test_series.py"),
    ("stream/groups/estimators.py", "previous[segments.starts[:-1]] = self.previous_[segments.slots]", "previous[segments.starts[:-1]] = np.nan", "stream/test_series_estimator.py"),
    ("stream/groups/estimators.py", "self.learner_.spec.rows - self.learner_.kept[slots] % self.learner_.spec.rows", "self.learner_.spec.rows + 0 * slots", "stream/test_series_estimator.py"),
    ("stream/groups/bands.py", "jnp.where(jnp.expand_dims(row < counts,", "jnp.where(jnp.expand_dims(row <= counts,", "stream/test_series.py"),
    ("stream/groups/session.py", "totals[first] += sums.pending[slots]", "totals[first] += 0 * sums.pending[slots]", "stream/test_series.py"),
    ("stream/groups/session.py", "first_rows[first] = np.where(begun > 0, sums.begun[slots], first_rows[first])", "first_rows[first] = first_rows[first]", "stream/test_series.py"),
    ("stream/groups/changes.py", "still_low = is_low & (memory < 4 *", "still_low = is_low & (memory < 2 *", "stream/test_series.py"),
    ("stream/groups/pipeline.py", "last[series[is_known]] = rows[is_known]", "last[:] = rows[is_known].max()", "stream/test_series.py"),
    ("stream/groups/pipeline.py", "parts.append(old.filter(pa.array(np.isin(numbers[: old.num_rows], waiting))))", "parts.append(old.slice(0, 0))", "stream/test_series.py"),
    ("algebra.py", "lambda new, old: jnp.where(needed, new, old), function(*arguments), default)", "lambda new, old: new, function(*arguments), default)", "stream/test_series.py"),
    ("environments/cartpole.py", "(4 / 3 - parameters", "(3 / 4 - parameters", "environments/test_environments.py"),
    # bounds, leaks, blocks, pictures
    ("studies/cartpole/soft_q.py", "possible + 0.1 * (value - possible)", "possible", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "observation_size), leak)", "observation_size))", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "x.observation.T) * x.action.T, axis=1).T", "x.observation.T) * x.action.T[::-1], axis=1).T", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "return 0.5 * jnp.sum((v - self.model_target(outer, x, y)) ** 2, axis=0)", "return jnp.sum((v - self.model_target(outer, x, y)) ** 2, axis=0)", "studies/test_cartpole_soft_q.py"),
    ("batching.py", "own if callable(own) else ", "", HYPERGRADIENTS),
    ("functions/network.py", "return batched(self.apply, in_axes=(None, 0))(self.params, xs)", "return jax.vmap(self)(xs)", HYPERGRADIENTS),
    ("studies/cartpole/program.py", "numbers.final_rate * first", "numbers.final_rate", "studies/test_cartpole_program.py"),
    ("studies/cartpole/settings.py", "config.trials // values", "config.trials", "studies/test_cartpole_study.py"),
    ("studies/cartpole/settings.py", "if each not in fixed[:index]", "", "studies/test_cartpole_study.py"),
    ("studies/cartpole/report.py", "frame.assign(part=number // together)", "frame.assign(part=number)", "studies/test_cartpole_study.py"),
    ("studies/cartpole/evaluation.py", "shown = jnp.where(running[0] > 0,", "shown = jnp.where(running[0] > -1,", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", '"used_squares": jnp.sum(used**2)', '"used_squares": 2 * jnp.sum(raw**2)', "studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", '"finite": finite[-1] > 0', '"finite": finite[0] > 0', "studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "[optax.clip_by_global_norm(clip)] if clip > 0 else []", "[]", "studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "inner_steps=config.inner_steps,", "inner_steps=1,", "studies/test_cartpole_program.py"),
    # the harness
    ("harness/folders.py", "        if here.get(name) != there.get(name)\n", "        if False\n", "harness/test_runner.py"),
    ("harness/store.py", "        os.fsync(file.fileno())\n", "        pass\n", "harness/test_store.py"),
    ("harness/page.py", "{title}</summary>", "{section.title}</summary>", "harness/test_page.py"),
    ("harness/study.py", "return -(-self.rounds // self.chunk)", "return self.rounds // self.chunk", "harness/test_runner.py"),
    ("cli.py", "if found[1] in options else found[0]", "", "harness/test_commands.py"),
    ("studies/theory/program.py", "values[:, 0] if name in", "values if name in", "studies/test_theory.py"),
    # averaged networks
    ("studies/cartpole/evaluation.py", "jnp.where(counted[:, None], values, 0)", "values", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "(number - jnp.arange(kept, dtype=number.dtype)) % kept", "jnp.arange(kept, dtype=number.dtype)", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "lane.networks.at[number % kept]", "lane.networks.at[0]", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/evaluation.py", "math.floor(config.averaged * number + 1e-9)", "math.ceil(config.averaged * number)", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", '"newest_return": jnp.mean(newest.returns)', '"newest_return": jnp.mean(evaluation.returns)', "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "number.dtype)[number]", "number.dtype)[number - 1]", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "jnp.min(evaluation.returns)", "jnp.min(newest.returns)", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "evaluation.observation[POLE_ANGLE]", "newest.observation[POLE_ANGLE]", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("harness/commands.py", "            report.refresh(folder)  # pyright: ignore[reportOptionalCall]\n", "            pass\n", "studies/test_cartpole_study.py"),
    ("studies/cartpole/stored.py", "    if len(twice):", "    if False:", "studies/test_cartpole_study.py"),
    ("studies/cartpole/stored.py", "for part in reversed(arrays)", "for part in arrays", "studies/test_cartpole_study.py"),
    ("studies/cartpole/settings.py", "nunique().min() < ENOUGH_SEEDS", "nunique().min() < 0", "studies/test_cartpole_study.py"),
    ("harness/statistics.py", "np.log(np.maximum", "np.log10(np.maximum", "studies/test_cartpole_study.py"),
    ("harness/lanes.py", "batch_size=block)", "batch_size=block)[:1]", "harness/test_runner.py"),
    ("smoothing.py", "return averages, state._replace(average=averages)", "return averages, state", SMOOTHING),
    # the arena
    ("studies/arena/leaderboard.py", 'lanes[lanes["seed"].isin(config.tuning)].groupby(["problem"', 'lanes.groupby(["problem"', "studies/test_arena.py"),
    ("studies/arena/leaderboard.py", 'same & lanes["seed"].isin(config.tuning)', 'same & lanes["seed"].isin(config.fresh)', "studies/test_arena.py"),
    ("studies/arena/measure.py", "np.where(np.isfinite(objective), objective, np.inf) - least", "objective - least", "studies/test_arena.py"),
    ("studies/arena/measure.py", "here = here[:, fine]", "here = np.nan_to_num(here)[:, : fine.sum()]", "studies/test_arena.py"),
    ("studies/arena/program.py", "with_seeds(method, problem, setting, config.fresh)", "with_seeds(method, problem, setting, config.tuning)", "studies/test_arena.py"),
    ("studies/arena/costs.py", 'if lane["seed"] in run.config.fresh and "noise" not in lane:', 'if "noise" not in lane:', "studies/test_arena.py"),
    ("studies/arena/tables.py", "<= SLACK * cost.get(method, 0)", "< float('inf')", "studies/test_arena.py"),
    ("studies/arena/drift_map.py", "if method.untuned is None else [method.untuned]", "if True else []", "studies/test_arena.py"),
    ("studies/arena/leaderboard.py", "> np.log(WITHIN)", "> 2 * np.log(WITHIN)", "studies/test_arena.py"),
    ("studies/arena/program.py", "length / jnp.where(size > 0, size, 1)", "length", "studies/test_arena.py"),
    ("studies/arena/measure.py", "gaps[:, rounds >= (rounds[-1] + rounds[1]) / 2].mean(axis=1)", "gaps.mean(axis=1)", "studies/test_arena.py"),
    ("studies/arena/measure.py", '"regret_1": spacing * ', '"regret_1": ', "studies/test_arena.py"),
    ("studies/arena/references.py", "testbed.best(round)", "testbed.initial()", "studies/test_arena.py"),
    ("studies/arena/contestants.py", "if not failed & {", "if failed or not failed & {", "studies/test_arena.py"),
    ("studies/arena/drift_map.py", "~lanes[\"seed\"].isin(config.tuning)", "(lanes[\"seed\"] >= 0)", "studies/test_arena.py"),
    ("harness/statistics.py", "table = np.where(np.isfinite(table), table, np.inf)", "table = np.nan_to_num(table)", "studies/test_arena.py"),
    ("harness/statistics.py", "draws[..., 0].mean(axis=1) / draws[..., 1].mean(axis=1)", "(draws[..., 0] / draws[..., 1]).mean(axis=1) ** 2", "studies/test_arena.py"),
]  # fmt: skip


def survives(file: str, old: str, new: str, tests: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "smoothfbo"
        shutil.copytree(ROOT / "src" / "smoothfbo", copy)
        source = (copy / file).read_text()
        if source.count(old) != 1:
            sys.exit(f"{file} must contain this text once, found {source.count(old)} times: {old}")
        (copy / file).write_text(source.replace(old, new))
        files = [str(ROOT / "tests" / each) for each in tests.split()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return result.returncode == 0


def main() -> None:
    """All mutations, or those of the files named on the command line; as many at a time as there are cores."""
    chosen = [mutation for mutation in MUTATIONS if len(sys.argv) == 1 or mutation[0] in sys.argv[1:]]
    survivors = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = pool.map(lambda each: survives(*each), chosen)
        for number, (mutation, alive) in enumerate(zip(chosen, verdicts, strict=True), 1):
            survivors += [mutation] if alive else []
            verdict = "SURVIVED" if alive else "caught  "
            print(f"{number:3d}/{len(chosen)} {verdict} {mutation[0]}: {mutation[2][:70]!r}", flush=True)
    if survivors:
        sys.exit(f"{len(survivors)} mutations were not noticed by any test")


if __name__ == "__main__":
    main()
