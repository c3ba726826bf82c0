"""Breaks the library on purpose, one place at a time, and shows that a test fails each time: `make mutants`.

Each mutation is (file, old text, new text, test files that must notice). The library is copied to a temporary folder,
which is put before the installed one on the path; the working tree is never touched.

    python tests/mutants.py                             all of them, as many at a time as there are cores
    python tests/mutants.py online.py --jobs 1          those of one file, one at a time
    python tests/mutants.py --part 2/4                  the second of four shares, for several machines
    python tests/mutants.py --check                     only whether every mutation fits the code (also done first)
"""

import argparse
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
    ("hypergradients/functional.py", "FunctionalState(fitted.inner, terms.adjoint, fitted.correction)", "FunctionalState(fitted.inner, state.adjoint, fitted.correction)", HYPERGRADIENTS),
    ("hypergradients/functional.py", "FunctionalState(fitted.inner, terms.adjoint, fitted.correction)", "FunctionalState(state.inner, terms.adjoint, fitted.correction)", HYPERGRADIENTS),
    # replay and steps that find their length
    ("hypergradients/replayed.py", "lambda new, old: jnp.where(usable, new, old)", "lambda new, old: new", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "return of_window - of_own", "return of_own - of_window", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "jnp.minimum(rounds, verdict.since)", "jnp.zeros_like(rounds)", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "return since < rounds, jnp", "return jnp.asarray(False), jnp", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "optax.tree.where(is_first, watched, change), fits", "watched, fits", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "watch(before, fits.gain, rounds == window)", "watch(before, fits.gain, rounds > 0)", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "usable &= ~is_wild", "usable &= True", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "jnp.where(has_changed, jnp.nan, jnp.min(losses))", "jnp.min(losses)", "library/test_replayed.py"),
    ("hypergradients/wild.py", "~state.before & (size", "(size", "library/test_replayed.py"),
    ("hypergradients/wild.py", "usable & ~is_wild, mean", "usable, mean", "library/test_replayed.py"),
    ("hypergradients/span.py", "-SHORTER * lead", "SHORTER * lead", "library/test_replayed.py"),
    ("hypergradients/span.py", "square * (1 - MEMORY) / (1 + MEMORY)", "square", "library/test_replayed.py"),
    ("hypergradients/span.py", "traces**2 / ", "traces / ", "library/test_replayed.py"),
    ("hypergradients/span.py", "jnp.sum(curvatures**2)", "jnp.sum(jnp.trace(curvatures, axis1=1, axis2=2) ** 2)", "library/test_replayed.py"),
    ("hypergradients/span.py", "usable = counts & jnp.isfinite(", "usable = jnp.isfinite(", "library/test_replayed.py"),
    ("hypergradients/span.py", "squared_norm((alone, state.half, state.whole))", "new", "library/test_replayed.py"),
    ("hypergradients/span.py", "squared_norm((alone, state.half, state.whole))", "squared_norm(alone)", "library/test_replayed.py"),
    ("hypergradients/functional.py", "for leaf in fitted or jax.tree.leaves(state.inner.params))", "for leaf in jax.tree.leaves(state.inner.params))", "library/test_corrections.py"),
    ("hypergradients/span.py", "lead > SURE * error", "lead > 0", "library/test_replayed.py"),
    ("hypergradients/span.py", "jnp.exp(change), 1, window)", "jnp.exp(change), 1, 2 * window)", "library/test_replayed.py"),
    ("hypergradients/span.py", "jnp.exp(change), 1, window)", "jnp.exp(change), 0, window)", "library/test_replayed.py"),
    ("hypergradients/span.py", "samples.weighted(jax.vmap(curvature)", "(jax.vmap(curvature)", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "rounds if state.span is None else state.span.rounds(rounds)", "rounds", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "self.estimator(problem, outer, window, prepared, ", "self.own(problem, outer, window, prepared, ", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "self.estimator(problem, outer, window, self._fresh(newer, prepared), key)", "self.estimator(problem, outer, window, newer, key)", "library/test_replayed.py"),
    ("recommended.py", "learns_span=not is_trained", "learns_span=True", "library/test_recommended.py"),
    ("recommended.py", "learns_span=not is_trained", "learns_span=False", "library/test_recommended.py"),
    ("recommended.py", "own = Functional(of_round, _damped(adjoint, damping), correction=_damped(correction, damping))", "own = Functional(of_round, adjoint, correction=_damped(correction, damping))", "library/test_recommended.py"),
    ("recommended.py", "of_round = _damped(inner, damping)", "of_round = inner", "library/test_recommended.py"),
    ("recommended.py", "adaptive_steps(length, candidates=2, cautious=is_trained", "adaptive_steps(candidates=2", "library/test_recommended.py"),
    ("recommended.py", "cautious=is_trained, project=project)", "cautious=is_trained)", "library/test_recommended.py"),
    ("hypergradients/replayed.py", "jnp.maximum(used // 2, 1)", "used", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "half.gradient, judge, counts)", "judge, half.gradient, counts)", "library/test_replayed.py"),
    ("hypergradients/change.py", "ALLOWED = 3.0", "ALLOWED = 1.5", "library/test_replayed.py"),
    ("hypergradients/change.py", "jnp.minimum(gain, state.mean + FAR * deviation)", "gain", "library/test_replayed.py"),
    ("hypergradients/change.py", "total=jnp.where(changed, 0, total)", "total=total", "library/test_replayed.py"),
    ("testbeds/regression.py", "jnp.sum(kept) < SMALLEST, nearest, kept", "jnp.sum(kept) < SMALLEST, kept, kept", "testbeds/test_known_truth.py"),
    ("hypergradients/replayed.py", "return new._replace(window=window, own=own, losses=losses, span=span)", "return new", FINITE),
    ("hypergradients/replayed.py", "dynamic_update_index_in_dim(kept, _finite(new), slot, 0)", "dynamic_update_index_in_dim(kept, new, slot, 0)", FINITE),
    ("hypergradients/replayed.py", "return jnp.concatenate([newest, ", "return jnp.concatenate([_finite(newest), ", "library/test_replayed.py"),
    ("hypergradients/functional.py", "isinstance(function, Linear) and identical(inner.features, function.features)", "isinstance(function, Linear)", "library/test_replayed.py"),
    ("functions/linear.py", "return samples._replace(x=Featured(samples.x, batched(self.features)(samples.x)))", "return samples", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "kept[(slot - ages[1:]) % len(kept)]", "kept[(slot - ages[1:] - 1) % len(kept)]", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "dtype=jnp.int32) % rounds", "dtype=jnp.int32) % window", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "Data(window.inner, newest.outer, final)", "window", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "Data(window.inner, newest.outer, final)", "Data(window.inner, newest.outer)", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "if self.estimator.paired:\n            return newest", "if False:\n            return newest", "library/test_replayed.py"),
    ("hypergradients/functional.py", "fitted.corrected.known_at(fresh), fresh, keys)", "fitted.corrected.known_at(data), data, keys)", "library/test_replayed.py"),
    ("hypergradients/functional.py", "if fresh.inner is not data.inner:", "if False:", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "(slot + 1) % self.window", "(slot + 1) % (self.window + 1)", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "_Chosen(functions, jnp.argmin(state.losses))", "_Chosen(functions, jnp.argmax(state.losses))", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "for function in self._functions(state)]", "for function in self._functions(state)[::-1]]", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "self.own(problem, outer, window, ", "self.own(problem, outer, state.window, ", "library/test_replayed.py"),
    ("functions/linear.py", "* jnp.trace(curvature) / size", "* jnp.trace(curvature)", "library/test_replayed.py"),
    ("functions/linear.py", "gradient += damping * (flat - ravel_pytree(start)[0])", "gradient += damping * flat", "library/test_replayed.py"),
    ("functions/linear.py", "self._best([end, *shares, params], state.params", "self._best([end], state.params", "library/test_hypergradients.py"),
    ("adaptive.py", "cosines = -faded * jnp.stack", "cosines = faded * jnp.stack", "library/test_adaptive.py"),
    ("adaptive.py", "cosines = -faded * jnp.stack", "cosines = -jnp.stack", "library/test_adaptive.py"),
    ("adaptive.py", "_scaled((updates, judge, gradients), weight)", "updates, judge, gradients", "library/test_adaptive.py"),
    ("adaptive.py", "jnp.maximum(UNUSUAL, middle) / size", "UNUSUAL / size", "library/test_adaptive.py"),
    ("adaptive.py", "jnp.maximum(jnp.minimum(last, before), ", "jnp.minimum(jnp.minimum(last, before), ", "library/test_adaptive.py"),
    ("adaptive.py", "new + TRACE * old", "new", "library/test_adaptive.py"),
    ("adaptive.py", "RECENT * state.cosines + (1 - RECENT) * cosines", "cosines", "library/test_adaptive.py"),
    ("adaptive.py", "directions=nothing, moves=nothing, before=params", "directions=nothing, before=params", "library/test_adaptive.py"),
    ("adaptive.py", "jnp.maximum(1 / jnp.sqrt(1 + age), HURRY * recent**2)", "HURRY * recent**2", "library/test_adaptive.py"),
    ("adaptive.py", "HURRY * recent**2", "HURRY * cosines**2", "library/test_adaptive.py"),
    ("adaptive.py", "cosine(judge, move)", "cosine(updates, move)", "library/test_adaptive.py"),
    ("adaptive.py", "kept * state.squares + (1 - kept) * _mean_squares(gradients, kept.dtype)", "_mean_squares(gradients, kept.dtype)", "library/test_adaptive.py"),
    ("adaptive.py", "state.mean, updates)", "state.mean, gradients[0])", "library/test_adaptive.py"),
    ("adaptive.py", "_scaled(mean, 1 / counted)", "mean", "library/test_adaptive.py"),
    ("adaptive.py", "move, lengths = _scaled(move, shorter), ", "lengths = ", "library/test_adaptive.py"),
    ("adaptive.py", "(shorter if cautious else 1) * lengths", "shorter * lengths", "library/test_adaptive.py"),
    ("adaptive.py", "(shorter if cautious else 1) * lengths", "lengths", "library/test_adaptive.py"),
    ("adaptive.py", "CAUTIOUS if cautious else LONGEST", "LONGEST", "library/test_adaptive.py"),
    ("adaptive.py", "SMALLEST * state.scale, most / _size(params) ** 0.5)", "SMALLEST * state.scale, 1e3 * most)", "library/test_adaptive.py"),
    ("hypergradients/replayed.py", "optax.tree.where(counts, refined.gradient, judge)", "judge", "library/test_replayed.py"),
    ("hypergradients/replayed.py", "optax.tree.where(counts, refined.gradient, judge)", "refined.gradient", "library/test_replayed.py"),
    ("adaptive.py", "jax.tree.map(jnp.multiply, direction, shares)", "direction", "library/test_adaptive.py"),
    ("adaptive.py", "tuple(map(through, map(_traced, state.directions, state.moves)))", "tuple(map(_traced, state.directions, state.moves))", "library/test_adaptive.py"),
    ("adaptive.py", "map(through, map(_traced, state.directions, state.moves))", "map(_traced, map(through, state.directions), state.moves)", "library/test_adaptive.py"),
    ("adaptive.py", "judge = through(judge)", "through(judge)", "library/test_adaptive.py"),
    ("adaptive.py", "optax.tree.add(before, move), norm(direction)", "before, norm(direction)", "library/test_adaptive.py"),
    ("adaptive.py", "jnp.isfinite(squared_norm(gradients)) & ", "", "library/test_adaptive.py"),
    ("online.py", "optax.tree.where(finite, estimate.candidates, zeros)", "optax.tree.zeros_like(estimate.candidates)", "library/test_adaptive.py"),
    # corrections
    ("hypergradients/corrections.py", "unravel(v - solve_small(", "unravel(v + solve_small(", "library/test_corrections.py"),
    ("hypergradients/corrections.py", "return first + 0.5 * second", "return first + second", "library/test_corrections.py"),
    ("hypergradients/corrections.py", "return optax.tree.add(batched(self.inner)(xs), batched(self.correction)(xs))", "return batched(self.inner)(xs)", "library/test_corrections.py"),
    ("hypergradients/functional.py", "FunctionalState(fitted.inner, terms.adjoint, fitted.correction)", "FunctionalState(fitted.inner, terms.adjoint, state.correction)", "library/test_corrections.py"),
    ("hypergradients/corrections.py", "Corrected(inner, inner, at, is_function=False)", "Corrected(inner, inner, at, is_function=True)", "library/test_corrections.py"),
    ("hypergradients/functional.py", "or self.correction.paired", "", "library/test_corrections.py"),
    # the two terms
    ("problem.py", "return jax.grad(coupling)(outer)", "return jax.tree.map(jnp.negative, jax.grad(coupling)(outer))", HYPERGRADIENTS),
    ("problem.py", "return samples.mean(LossAt(loss", "return jnp.sum(LossAt(loss", HYPERGRADIENTS),
    ("hypergradients/functional.py", "gradient=optax.tree.add(terms.explicit, terms.implicit)", "gradient=terms.implicit", HYPERGRADIENTS),
    ("hypergradients/functional.py", "return self.adjoint.paired or", "return False and", HYPERGRADIENTS),
    ("hypergradients/functional.py", "explicit = problem.explicit(outer, at_final.outer, final.outer)", "explicit = jax.grad(lambda outer: problem.outer_mean(outer, batched(self.inner.bind(self.inner.fit(state.inner, inner_objective(problem, outer, data.inner), keys.inner).params))(final.outer.x), final.outer))(outer)", HYPERGRADIENTS),
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
    ("hypergradients/reevaluated.py", "return _Fitted(self.function.at(outer))", "return self", PENALTIES),
    ("hypergradients/reevaluated.py", "return self.function.depends_on_outer", "return False", PENALTIES),
    ("hypergradients/reevaluated.py", "and all(map(_same_code, closed, others))", "", METHODS),
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
    ("online.py", "return jnp.array(leaf) if is_shared else leaf", "return leaf", ONLINE),
    ("traps.py", "and not np.any(norms[0]) and not np.any(norms[1])", "and not np.any(norms[0])", TRAPS),
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
    ("functions/base.py", "for at in (predictions, optax.tree.zeros_like(predictions))", "for at in (predictions, predictions)", HYPERGRADIENTS),
    ("hypergradients/functional.py", "(residual <= TOLERANCE) & ", "", HYPERGRADIENTS),
    ("hypergradients/functional.py", " & (terms.residual <= TOLERANCE)", "", HYPERGRADIENTS),
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
    ("hypergradients/adjoints.py", "Term(linear, data.outer._replace(y=slopes), is_linear=True)", "Term(linear, data.outer._replace(y=slopes, weight=None), is_linear=True)", PADDING),
    # long runs, live data, files, tables
    ("pieces.py", "jax.lax.fori_loop(0, count, one", "jax.lax.fori_loop(0, size, one", RUNS),
    ("pieces.py", "lambda leaf: leaf[:count], jax.device_get(trace)", "lambda leaf: leaf, jax.device_get(trace)", RUNS),
    ("pieces.py", "first = int(state.learner.round)", "first = 0", RUNS),
    ("pieces.py", "leaf[first : first + count]", "leaf[:]", RUNS),
    ("pieces.py", "if stop is not None and bool(stop):", "if stop is True:", RUNS),
    ("source.py", "return np.array(leaf, jnp.result_type(leaf))", "return np.asarray(leaf, jnp.result_type(leaf))", RUNS),
    ("compiled.py", "(_ARRAY, None) if _is_array(leaf) else (type(leaf), leaf)", "(_ARRAY, None) if _is_array(leaf) else (None, leaf)", RUNS),
    ("compiled.py", "quick if is_alone and ", "quick if ", RUNS),
    ("compiled.py", "checks.computes_at_once()", "checks.is_concrete(arguments)", RUNS),
    ("runs.py", "norms if are_known else None", "norms", "library/test_traps.py"),
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
    ("testbeds/corruption.py", "return jax.grad(lambda outer: jnp.sum(slope", "return -jax.grad(lambda outer: jnp.sum(slope", "testbeds/test_corruption.py"),
    ("testbeds/corruption.py", "family, key = self.linear(steps=2)", "family, key = self.linear(steps=1)", "testbeds/test_corruption.py"),
    ("testbeds/corruption.py", "(1 - share) * truth + share * following", "share * truth + (1 - share) * following", "testbeds/test_corruption.py"),
    ("testbeds/corruption.py", "self.project(outer - length * free / norm(free))", "self.project(outer + length * free / norm(free))", "testbeds/test_corruption.py"),
    ("testbeds/corruption.py", "jnp.where(is_lower, 1.5, 0.5)", "jnp.where(is_lower, 1.5, 1.0)", "testbeds/test_corruption.py"),
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
    ("studies/regression/measure.py", '"error_squared": _square(smoothed - target)', '"error_squared": _square(smoothed - gradient)', "studies/test_regression.py"),
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
    ("harness/remote.py", "sorted(here, key=lambda name: here[name][1])", "sorted(here)", "harness/test_remote.py"),
    ("harness/remote.py", "is_whole = False", "pass", "harness/test_remote.py"),
    ("harness/remote.py", "(1 if is_last else -1) * SETTLED", "SETTLED", "harness/test_remote.py"),
    ("harness/remote.py", 'self.discard("progress")  # with', 'pass  # with', "harness/test_remote.py"),
    ("harness/remote.py", "            self.push(is_last=True)\n", "            pass\n", "harness/test_remote.py"),
    ("harness/workers/cluster.py", "self._mirror.pull_records(at_once=bool(done))", "self._mirror.pull_records(at_once=False)", "harness/test_remote.py"),
    ("harness/workers/cluster.py", "self._mirror.push(is_last=True)  # the configuration", "pass  # the configuration", "harness/test_remote.py"),
    ("harness/costs.py", "programs * (busy + work)", "(busy + work)", "harness/test_costs.py"),
    ("harness/costs.py", "max(1.0, workers / layout.cores)", "1.0", "harness/test_costs.py"),
    ("stream/groups/shares.py", "% self.number == self.index", "% self.number <= self.index", "stream/groups/test_series.py"),
    ("stream/groups/shares.py", 'change | {"series": before + change["series"]}', "change", "stream/groups/test_series.py"),
    ("stream/groups/shares.py", "sink.snapshot, share.of)", "None, share.of)", "stream/groups/test_series.py"),
    ("harness/chunks.py", "if done <= recorded:", "if True:", "harness/test_runner.py"),
    ("harness/chunks.py", 'keep = records["round"][0] < program.rounds', 'keep = records["round"][0] <= program.rounds', "harness/test_runner.py"),
    ("harness/checkpoints.py", "if not np.array_equal(stored, _digest(arrays)):", "if False:", "harness/test_runner.py"),
    ("harness/lanes.py", "np.repeat(values[-1:], self._width - len(values), axis=0)", "values[:0]", "harness/test_runner.py"),
    ("harness/lanes.py", "np.asarray(leaf)[first : first + self._width]", "np.asarray(leaf)[: self._width]", "harness/test_runner.py"),
    ("harness/runner.py", "if not (work / CHOICE).exists():", "if True:", "harness/test_runner.py"),
    ("harness/runner.py", "if study.sequel is None or missing:", "if study.sequel is None:", "harness/test_workers.py"),
    ("harness/workers/blocks.py", "enumerate(programs, before)", "enumerate(programs)", "harness/test_workers.py"),
    ("harness/interactive.py", "return escape(text, quote=False)", "return text", "harness/test_page.py"),
    # runs over tables
    ("stream/pipeline.py", "skip, grid = self.done, config.rows_per_block", "skip, grid = 0, config.rows_per_block", "stream/test_stream_command.py"),
    # the mixture of experts of the stream
    ("stream/learner/recursive.py", "is_known.astype(rows.dtype), goals).rest", "jnp.ones(count, rows.dtype), goals).rest", "stream/learner/test_experts.py"),
    ("stream/learner/recursive.py", "jnp.diag(1 / jnp.where(is_known, known, 1))", "jnp.eye(count)", "stream/learner/test_experts.py"),
    ("stream/learner/recursive.py", "transposed_product(past.rest[:, : rows.shape[0]] / past.pivots[:, None], past.rest)", "transposed_product(past.rest[:, : rows.shape[0]], past.rest)", "stream/learner/test_experts.py"),
    ("stream/learner/experts.py", "difference = level - sums[:, p + 1 :: 2, :p]", "difference = level", "stream/learner/test_experts.py"),
    ("stream/learner/random_features.py", "jnp.sqrt(RIDGE * (1 - retention) * size / RESTORED)", "jnp.sqrt(RIDGE * (1 - retention))", "stream/learner/test_experts.py"),
    ("stream/learner/random_features.py", "inverse = state.inverse / retention", "inverse = state.inverse", "stream/learner/test_experts.py"),
    ("stream/base.py", "return self._is_started and self.learned_.can_predict(self.learned_.split_row(x)[1])", "return self._is_started", "stream/test_estimator_fit.py"),
    ("stream/groups/many.py", "(slots >= 0) & ~np.isnan(self.previous[slots])", "slots >= 0", "stream/groups/test_series_estimator.py"),
    ("stream/series.py", "y = np.where(weights > 0, y, np.nan)", "pass", "stream/test_estimator_fit.py"),
    ("stream/learner/products.py", "np.where(self.is_switch, SWITCH, CLIP)", "np.where(self.is_switch, CLIP, CLIP)", "stream/learner/test_products.py"),
    ("stream/learner/products.py", "(one < other) & (text[one] != text[other])", "(one < other)", "stream/learner/test_products.py"),
    ("stream/learner/single.py", "experts[3 + fits, :p] += steps[self.begin.linear]", "pass", "stream/learner/test_products.py"),
    ("stream/learner/panel.py", "products, *found = recur(state.random.products, multiply(inputs, self.products), rest, counts)", "products, *found = recur(state.random.products, multiply(inputs, self.products), rest, counts * 0)", "stream/learner/test_products.py"),
    ("stream/learner/aggregation.py", "regrets - jnp.where(is_bernstein, rates * regrets**2, 0)", "regrets", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "jnp.maximum(positive, 0) / jnp.where(squares > 0, squares, 1)", "jnp.maximum(positive, 0)", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "(kept * before.shares + share)", "kept * before.shares", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "losses / own, LARGEST_LOSS) / 2", "losses / own, LARGEST_LOSS)", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "goals, known, VERY_LARGE_ERROR)", "goals, known, LARGE_ERROR)", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "_part(errors[:2], large**2 * scale)", "_part(errors[:2], large * scale)", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "(jnp.abs(said) + jnp.abs(goals))", "jnp.abs(said - goals)", "stream/learner/test_experts.py"),
    ("stream/learner/recent.py", "(here - leader) / scale", "(here - leader) / (2 * scale)", "stream/learner/test_experts.py"),
    ("stream/learner/recent.py", "errors, jnp.max(errors, axis=0)", "errors, 0", "stream/learner/test_experts.py"),
    ("stream/learner/discounting.py", "count[None, 1:], 0)", "count[None, :-1], 0)", "stream/learner/test_vote.py"),
    ("stream/learner/vote.py", "softmax(-RATE * all[:, :-1]", "softmax(-RATE * all[:, 1:]", "stream/learner/test_vote.py"),
    ("stream/learner/vote.py", "argmax(votes + probabilities", "argmax(votes", "stream/learner/test_vote.py"),
    ("stream/learner/vote.py", "jnp.cumsum(others) - others", "jnp.cumsum(others)", "stream/learner/test_vote.py"),
    ("stream/learner/since.py", "has_changed = losses[0] > WORSE", "has_changed = losses[0] > 4 * WORSE", "stream/learner/test_experts.py"),
    ("stream/learner/since.py", "Since(jnp.where(has_changed, 0, state.moments)", "Since(state.moments", "stream/learner/test_experts.py"),
    ("stream/learner/since.py", "LONG = 64", "LONG = 67", "stream/learner/test_experts.py"),
    ("stream/learner/since.py", "LONG = 64", "LONG = 7", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "regrets.sums.at[expert].set(jnp.max(regrets.sums))", "regrets.sums", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "logs.at[expert].set(jnp.max(logs))", "logs", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "losses.at[:, expert].set(jnp.min(recent.losses, axis=1))", "losses", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "_replace(log_weights=fresh.shared.log_weights)", "_replace()", "stream/learner/test_experts.py"),
    ("stream/learner/aggregation.py", "fresh._replace(shared=second.shared._replace", "fresh._replace(shared=fresh.shared._replace", "stream/learner/test_experts.py"),
    ("stream/learner/units.py", "jnp.maximum(1.0, HISTORY / jnp.maximum(range.blocks, 1).astype(low.dtype))", "1.0", "stream/learner/test_experts.py"),
    ("stream/learner/views.py", "far=jnp.maximum(state.targets.far - 1, 0)", "far=state.targets.far", "stream/learner/test_units.py"),
    ("stream/learner/stacking.py", "ridge * size + PRIOR * scale", "ridge * size", "stream/learner/test_experts.py"),
    ("stream/learner/rounds.py", "if not self.spec.delay:  # else", "if True:  # else", "stream/learner/test_horizon.py"),
    ("stream/learner/rounds.py", "begun & (spec.delay == 0)", "begun", "stream/learner/test_horizon.py"),
    ("stream/learner/rounds.py", "said_of(waiting, state.memory.blocks)", "said_of(waiting, waiting.blocks - 1)", "stream/learner/test_horizon.py"),
    ("stream/learner/rounds.py", "played.said, index < keep)", "played.said, index < count)", "stream/learner/test_horizon.py"),
    ("stream/learner/late_rules.py", "return self.part * self.is_known", "return 2 * self.part * self.is_known", "stream/learner/test_horizon.py"),
    ("stream/learner/late_rules.py", "2 * (said - goals)[:2]", "2 * (goals - said)[:2]", "stream/learner/test_horizon.py"),
    ("stream/learner/late_rules.py", "1 - (1 - SHARE) ** block.number", "SHARE", "stream/learner/test_horizon.py"),
    ("stream/learner/late_rules.py", "is_known & (jnp.abs(regrets) > rounding(said[:2], goals)[:, None])", "is_known", "stream/learner/test_experts.py"),
    ("stream/learner/late.py", "kept[:, None] * state.losses + errors", "state.losses + errors", "stream/learner/test_horizon.py"),
    ("stream/learner/intervals.py", "given[0])", "residual)", "stream/learner/test_intervals.py"),
    ("stream/learner/intervals.py", "(intervals.row - intervals.horizon) % length", "(intervals.row - 1) % length", "stream/learner/test_intervals.py"),
    ("stream/learner/intervals.py", "STEP * _slope(residual, given, levels)", "STEP * _slope(residual, edges[0], levels)", "stream/learner/test_intervals.py"),
    ("stream/learner/intervals.py", "jax.nn.softmax(-tracker.loss)", "jax.nn.softmax(tracker.loss)", "stream/learner/test_intervals.py"),
    ("stream/learner/intervals.py", "scales=intervals.scales.at[slot].set(tracker.scale)", "scales=intervals.scales.at[slot].set(2 * tracker.scale)", "stream/learner/test_intervals.py"),
    ("stream/learner/calibration.py", "/ (2 * classes)", "/ classes", "stream/learner/test_calibration.py"),
    ("stream/learner/calibration.py", "softmax(-calibration.losses)", "softmax(calibration.losses)", "stream/learner/test_calibration.py"),
    ("stream/learner/calibration.py", "known = known * (truth @ seen.astype(truth.dtype))", "known = known * 1", "stream/learner/test_calibration.py"),
    ("stream/learner/blocks.py", "root = mask if weight is None else jnp.sqrt(mask)", "root = mask", "stream/test_estimator_fit.py"),
    ("stream/learner/single.py", "weights[2] = (1 - SHARE) * weights[2] + self.share", "weights[2] = weights[2]", "stream/test_estimator_fit.py"),
    ("stream/learner/single.py", "experts[1 + fits, :p] += steps[self.begin.linear]", "pass", "stream/test_estimator_fit.py"),
    ("stream/learner/coefficients.py", "shift=units.shift - features.mean", "shift=units.shift", "stream/test_estimator_fit.py"),
    ("stream/learner/learner.py", "index // room * block + begun + index % room", "index + begun", "stream/test_estimator_fit.py"),
    ("stream/live.py", "lost, self.waiting = lost[:place], lost[place + 1 :]", "lost, self.waiting = lost[:place], []", "stream/test_live.py"),
    ("stream/live.py", "self._ahead = copy.deepcopy(self.session)", "self._ahead = self.session", "stream/test_live.py"),
    ("stream/pipeline.py", "piece = piece.slice(rows + 1)", "piece = piece.slice(rows + 2)", "stream/test_live.py"),
    ("stream/stored.py", "before = slice(max(at - 16, 0), max(at, 0))", "before = slice(max(at - 16, 0), max(at + 16, 0))", "stream/test_diagnostics.py"),
    ("stream/folder.py", "if _number(path) > self._part:", "if False:", "stream/test_stream_command.py"),
    # many series
    ("stream/segments.py", "first = np.repeat(starts[:-1], np.diff(starts))[:, None]", "first = 0", "stream/groups/test_series.py"),
    ("stream/reading/text.py", "self._slashed.add(name)", "pass", "stream/reading/test_table.py"),
    ("stream/reading/schema.py", "(MOSTLY_NEW if are_many else 1)", "(0 if are_many else 1)", "stream/reading/test_table.py"),
    ("stream/reading/features.py", "filled = joined.of(self._history[segments.slots].ravel(), target)", "filled = joined.of(np.roll(self._history, 1, axis=0)[segments.slots].ravel(), target)", "stream/groups/test_series.py"),
    ("stream/groups/learners.py", "self.at[lanes] = np.where(is_waiting | is_last, at + valid, at + learn)", "self.at[lanes] = at + valid", "stream/groups/test_series.py"),
    ("stream/groups/learners.py", "            self.learners.states[slots] = states[: len(lanes)]", "            self.learners.states[slots] = states[: len(lanes)][::-1]", "stream/groups/test_series.py"),
    ("stream/groups/learners.py", "learnt = np.maximum(self.full - self.spec.delay, 0) * block", "learnt = np.maximum(self.full - 1, 0) * block", "stream/groups/test_series.py"),
    ("stream/groups/many.py", "known = joined.of(self.previous[segments.slots], y)", "known = joined.of(np.nan * self.previous[segments.slots], y)", "stream/groups/test_series_estimator.py"),
    ("stream/groups/many.py", "self.spec.rows - self.learners.kept[slots] % self.spec.rows", "self.spec.rows + 0 * slots", "stream/groups/test_series_estimator.py"),
    ("stream/learner/panel.py", "jnp.tri(len(rows), k=-1", "jnp.tri(len(rows), k=0", "stream/learner/test_neighbours.py"),
    ("stream/learner/panel.py", "(~self.views.is_lag).astype(rows.dtype), column", "jnp.ones(spec.features), column", "stream/learner/test_neighbours.py"),
    ("stream/learner/neighbours.py", "NEARNESS + distances", "distances", "stream/learner/test_neighbours.py"),
    ("stream/learner/neighbours.py", "1 - jnp.sum(shares, keepdims=True)", "jnp.sum(shares, keepdims=True)", "stream/learner/test_neighbours.py"),
    ("stream/learner/neighbours.py", "SMALLEST**2 + ", "0 * SMALLEST**2 + ", "stream/learner/test_neighbours.py"),
    ("stream/learner/neighbours.py", "- 2 * rows @ others.T", "- rows @ others.T", "stream/learner/test_neighbours.py"),
    ("stream/learner/blocks.py", "jnp.where(weight > 0, block.target, jnp.nan)", "block.target", "stream/learner/test_neighbours.py"),
    ("stream/learner/panel.py", " & (known > 0)", "", "stream/learner/test_neighbours.py"),
    ("stream/learner/blocks.py", "spec.with_references or spec.is_classification", "spec.with_references", "stream/learner/test_neighbours.py"),
    ("stream/learner/mixture.py", "if name not in NEIGHBOURS]", "if True]", "stream/learner/test_neighbours.py"),
    ("stream/learner/panel.py", "moments[ladder(spec.rates)[self.linear]]", "moments[0]", "stream/learner/test_neighbours.py"),
    ("stream/series.py", "fill_forward(known[:, None], np.array([0, len(known)]))", "pass", "stream/test_estimator_fit.py"),
    ("stream/base.py", "KeyedRows(self._encoded(X, learns=False), keys)", "KeyedRows(self._encoded(X, learns=True), keys)", "stream/test_estimator_fit.py"),
    ("stream/groups/bands.py", "jnp.where(jnp.expand_dims(row < counts,", "jnp.where(jnp.expand_dims(row <= counts,", "stream/groups/test_series.py"),
    ("stream/groups/session.py", "totals[first] += sums.pending[slots]", "totals[first] += 0 * sums.pending[slots]", "stream/groups/test_series.py"),
    ("stream/groups/session.py", "first_rows[first] = np.where(begun > 0, sums.begun[slots], first_rows[first])", "first_rows[first] = first_rows[first]", "stream/groups/test_series.py"),
    ("stream/groups/changes.py", "still_low = is_low & (memory < 4 *", "still_low = is_low & (memory < 2 *", "stream/groups/test_series.py"),
    ("stream/groups/pipeline.py", "last[series[is_known]] = rows[is_known]", "last[:] = rows[is_known].max()", "stream/groups/test_series.py"),
    ("stream/groups/pipeline.py", "parts.append(old.filter(pa.array(np.isin(numbers[: old.num_rows], waiting))))", "parts.append(old.slice(0, 0))", "stream/groups/test_series.py"),
    ("algebra.py", "optax.tree.where(needed, function(*arguments), default)", "function(*arguments)", "stream/groups/test_series.py"),
    ("environments/cartpole.py", "(4 / 3 - parameters", "(3 / 4 - parameters", "environments/test_environments.py"),
    # bounds, leaks, blocks, pictures
    ("studies/cartpole/soft_q.py", "possible + 0.1 * (value - possible)", "possible", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "observation_size), leak, fused)", "observation_size), fused=fused)", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "x.observation.T) * x.action.T, axis=1).T", "x.observation.T) * x.action.T[::-1], axis=1).T", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/soft_q.py", "return 0.5 * jnp.sum((v - self.model_target(outer, x, y)) ** 2, axis=0)", "return jnp.sum((v - self.model_target(outer, x, y)) ** 2, axis=0)", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/fused.py", "gradient, form.leak * gradient)", "gradient, gradient)", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/fused.py", "pallas.program_id(0) * width + i < samples", "i < samples", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/fused.py", "for block in range(_blocks(x))", "for block in range(1)", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/fused.py", "if number or of_x:", "if number:", "studies/test_cartpole_soft_q.py"),
    ("studies/cartpole/program.py", "q if method.estimator in ONCE_DIFFERENTIATED else q.plain", "q", "studies/test_cartpole_soft_q.py"),
    ("batching.py", "own if callable(own) else ", "", HYPERGRADIENTS),
    ("functions/network.py", "return batched(self.apply, in_axes=(None, 0))(self.params, xs)", "return jax.vmap(self)(xs)", HYPERGRADIENTS),
    ("studies/cartpole/program.py", "numbers.final_rate * first", "numbers.final_rate", "studies/test_cartpole_program.py"),
    ("studies/cartpole/settings.py", "config.trials // values", "config.trials", "studies/test_cartpole_study.py"),
    ("studies/cartpole/settings.py", "if each not in fixed[:index]", "", "studies/test_cartpole_study.py"),
    ("studies/cartpole/charts.py", "frame.assign(part=number // together)", "frame.assign(part=number)", "studies/test_cartpole_study.py"),
    ("studies/cartpole/evaluation.py", "shown = jnp.where(running[0] > 0,", "shown = jnp.where(running[0] > -1,", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", '"used_squares": jnp.sum(smoothed**2)', '"used_squares": 2 * jnp.sum(raw**2)', "studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", '"finite": finite[-1] > 0', '"finite": finite[0] > 0', "studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "[optax.clip_by_global_norm(clip)] if clip > 0 else []", "[]", "studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "inner_steps=config.inner_steps,", "inner_steps=1,", "studies/test_cartpole_program.py"),
    # the harness
    ("harness/folders.py", "        if here.get(name) != there.get(name)\n", "        if False\n", "harness/test_runner.py"),
    ("harness/store.py", "        os.fsync(file.fileno())\n", "        pass\n", "harness/test_store.py"),
    ("harness/page.py", "{title}</summary>", "{section.title}</summary>", "harness/test_page.py"),
    ("harness/study.py", "return -(-self.rounds // self.chunk)", "return self.rounds // self.chunk", "harness/test_runner.py"),
    ("errors.py", "if found[1] in options else found[0]", "", "harness/test_commands.py"),
    ("studies/theory/program.py", "values[:, 0] if name in", "values if name in", "studies/test_theory.py"),
    # averaged networks
    ("studies/cartpole/evaluation.py", "jnp.where(counted[:, None], values, 0)", "values", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/evaluation.py", "values = jax.nn.one_hot(jnp.argmax(values, axis=1), values.shape[1], dtype=values.dtype)", "values = jax.nn.softmax(values, axis=1)", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/evaluation.py", "        if vote:", "        if False:", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/program.py", "networks, counted, config.vote)", "networks, counted)", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
    ("studies/cartpole/report.py", 'if settings.get("vote") else', "if False else", "studies/test_cartpole_evaluation.py studies/test_cartpole_program.py"),
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
    ("studies/arena/measure.py", "gaps[:, is_late(rounds)].mean(axis=1)", "gaps.mean(axis=1)", "studies/test_arena.py"),
    ("studies/arena/references.py", "halves = times, times[is_late(rounds)]", "halves = times, times", "studies/test_arena.py"),
    ("studies/arena/leaderboard.py", 'if row["method"] not in untuned and', "if", "studies/test_arena.py"),
    ("studies/arena/entries.py", "{**self.knobs, **knobs}", "{**knobs, **self.knobs}", "studies/test_arena.py"),
    ("studies/arena/knobs.py", "owners = [result[name]] if name else", "owners = [] if name else", "studies/test_arena.py"),
    ("testbeds/drift.py", "jnp.sin(2 * np.pi * place)", "jnp.sin(np.pi * place)", "testbeds/test_drifts.py"),
    ("testbeds/cosine.py", "else 2 * np.pi * self.drift(round)", "else self.drift(round)", "testbeds/test_drifts.py"),
    ("hypergradients/adjoints.py", "predictions.inner)), is_quadratic=True)", "predictions.inner)))", "library/test_hypergradients.py"),
    ("studies/arena/measure.py", '"regret_1": spacing * ', '"regret_1": ', "studies/test_arena.py"),
    ("studies/arena/references.py", "testbed.best(round)", "testbed.initial()", "studies/test_arena.py"),
    ("studies/arena/contestants.py", "if not failed & {", "if failed or not failed & {", "studies/test_arena.py"),
    ("studies/arena/drift_map.py", "~lanes[\"seed\"].isin(config.tuning)", "(lanes[\"seed\"] >= 0)", "studies/test_arena.py"),
    ("harness/statistics.py", "table = np.where(np.isfinite(table), table, np.inf)", "table = np.nan_to_num(table)", "studies/test_arena.py"),
    ("harness/statistics.py", "draws[..., 0].mean(axis=1) / draws[..., 1].mean(axis=1)", "(draws[..., 0] / draws[..., 1]).mean(axis=1) ** 2", "studies/test_arena.py"),
]  # fmt: skip


def misfits(mutations: list[tuple[str, str, str, str]]) -> list[str]:
    """What is wrong with these mutations: text that is not there exactly once, no change, a file that does not exist."""
    problems = []
    for file, old, new, tests in mutations:
        source = ROOT / "src" / "smoothfbo" / file
        count = source.read_text().count(old) if source.exists() else 0
        problems += [f"{file} must contain this text once, found {count} times: {old}"] if count != 1 else []
        problems += [f"{file}: this mutation changes nothing: {old}"] if old == new else []
        problems += [f"{file}: no tests/{each}" for each in tests.split() if not (ROOT / "tests" / each).exists()]
    return problems


def survives(file: str, old: str, new: str, tests: str) -> bool:
    """Whether no test notices the library with `new` in place of `old`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "smoothfbo"
        shutil.copytree(ROOT / "src" / "smoothfbo", copy)
        (copy / file).write_text((copy / file).read_text().replace(old, new))
        files = [str(ROOT / "tests" / each) for each in tests.split()]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        return result.returncode == 0


def share(text: str) -> tuple[int, int]:
    """2/4 is the second of four shares."""
    part, parts = map(int, text.split("/"))
    if not 1 <= part <= parts:
        raise ValueError(text)
    return part, parts


def main() -> None:
    parser = argparse.ArgumentParser(description="Breaks the library on purpose and shows that a test fails each time.")
    parser.add_argument("files", nargs="*", help="only mutations of these files, such as online.py")
    parser.add_argument("--part", type=share, default=(1, 1), help="only one share of them, such as 2/4")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time (as many as cores)")
    parser.add_argument("--check", action="store_true", help="only see whether every mutation fits the code")
    options = parser.parse_args()
    if problems := misfits(MUTATIONS):
        sys.exit("\n".join(problems))
    if unknown := set(options.files) - {file for file, *_ in MUTATIONS}:
        sys.exit(f"no mutations of {', '.join(sorted(unknown))}")
    part, parts = options.part
    chosen = [each for each in MUTATIONS if not options.files or each[0] in options.files][part - 1 :: parts]
    if options.check:
        print(f"all {len(MUTATIONS)} mutations fit the code")
        return
    survivors = []
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = pool.map(lambda each: survives(*each), chosen)
        for number, (mutation, alive) in enumerate(zip(chosen, verdicts, strict=True), 1):
            survivors += [mutation] if alive else []
            verdict = "SURVIVED" if alive else "caught  "
            print(f"{number:3d}/{len(chosen)} {verdict} {mutation[0]}: {mutation[2][:70]!r}", flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutations were caught")
    if survivors:
        lines = [f"{file}: {old!r} -> {new!r} ({tests})" for file, old, new, tests in survivors]
        sys.exit("\n".join(["no test noticed:", *lines]))


if __name__ == "__main__":
    main()
