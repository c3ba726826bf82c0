"""Who takes part: the methods and problems of the arena's tables and of plug-ins, by name."""

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from smoothfbo.errors import UsageError
from smoothfbo.harness import folders
from smoothfbo.harness.requirements import require_known
from smoothfbo.studies.arena import knobs, plugins
from smoothfbo.studies.arena.config import ArenaConfig
from smoothfbo.studies.arena.entries import ArenaMethod, ArenaProblem
from smoothfbo.studies.arena.methods import METHODS
from smoothfbo.studies.arena.plugins import Entry, Failure, Plugin, part_of
from smoothfbo.studies.arena.problems import PROBLEMS

TRIAL_METHOD = "fbo"  # the method that tries out a plug-in's problem


@dataclass(frozen=True)
class Contestants:
    """The chosen problems and methods; `owners` says which plug-in file an entry comes from."""

    problems: tuple[ArenaProblem, ...]
    methods: tuple[ArenaMethod, ...]
    plugins: tuple[Plugin, ...] = ()
    failures: tuple[Failure, ...] = ()
    owners: tuple[tuple[str, str], ...] = ()  # (part, file)

    @property
    def inputs(self) -> dict[str, Any]:
        """What the run's folder keeps, so that it resumes without the files and without trying them again."""
        if not self.plugins:
            return {}
        return {"plugins": list(map(asdict, self.plugins)), "failures": list(map(asdict, self.failures))}

    def problem(self, name: str) -> ArenaProblem:
        return next(problem for problem in self.problems if problem.name == name)

    def owner(self, *entries: Entry) -> tuple[str, str] | None:
        """(part, file) of the first entry that is a plug-in's."""
        owners = dict(self.owners)
        return next(((part, owners[part]) for part in map(part_of, entries) if part in owners), None)

    def pairs(self) -> Iterator[tuple[ArenaProblem, ArenaMethod]]:
        """Every method on every problem, but for what failed."""
        failed = {(failure.problem, failure.method) for failure in self.failures}
        for problem in self.problems:
            for method in self.methods:
                if not failed & {(problem.name, None), (problem.name, method.name)}:
                    yield problem, method


def gather(config: ArenaConfig, folder: Path) -> Contestants:
    """Those of the run in the folder, if there is one; else plug-ins are read from their files and tried out."""
    stored = _stored(config, folder)
    if stored is not None:
        kept = tuple(Plugin(**plugin) for plugin in stored["plugins"])
        return _chosen(config, kept, tuple(Failure(**failure) for failure in stored["failures"]))
    read = tuple(plugins.read(config.add))
    failures = []
    for plugin in read:
        why = plugins.trial({"plugins": [asdict(plugin)]}, config.time_limit)
        failures += [Failure(plugin.file, "import", why)] if why else []
    contestants = _chosen(config, read, tuple(failures))
    failures += _try_out(config, contestants)
    for failure in failures:
        warnings.warn(failure.line, stacklevel=2)
    contestants = replace(contestants, failures=tuple(failures))
    if not any(contestants.pairs()):
        raise UsageError(f"nothing is left to run: {failures[0].line}.")
    return contestants


def _stored(config: ArenaConfig, folder: Path) -> dict[str, Any] | None:
    if not config.add or not (folder / "config.json").exists():
        return None
    description = folders.read_description(folder)
    same = description["config"].get("add") == list(config.add) and "plugins" in description
    return description if same else None


def _chosen(config: ArenaConfig, read: tuple[Plugin, ...], failures: tuple[Failure, ...]) -> Contestants:
    """What the options name, and whatever the plug-ins bring."""
    broken = {failure.file for failure in failures if failure.part == "import"}
    owned = [(entry, plugin.file) for plugin in read if plugin.file not in broken for entry in plugins.load(plugin)]
    added = [entry for entry, _ in owned]
    methods = _pick("methods", config.methods, METHODS, [each for each in added if isinstance(each, ArenaMethod)])
    problems = _pick("problems", config.problems, PROBLEMS, [each for each in added if isinstance(each, ArenaProblem)])
    problems = _with_knobs(config, problems)
    return Contestants(problems, methods, read, failures, tuple((part_of(entry), file) for entry, file in owned))


def _pick(option: str, names: tuple[str, ...], table: Any, added: list[Any]) -> Any:
    known = [entry.name for entry in (*table, *added)]
    taken = next((name for name in known if known.count(name) > 1), None)
    if taken is not None:
        raise UsageError(f"`add`: the name {taken} is taken; give the plug-in's entry another one.")
    require_known(option, names or tuple(known), tuple(known))
    return tuple(entry for entry in (*table, *added) if not names or entry.name in names or entry in added)


def _with_knobs(config: ArenaConfig, problems: tuple[ArenaProblem, ...]) -> tuple[ArenaProblem, ...]:
    """The problems with the knobs that the user wants; a value that a problem refuses is one line."""
    if not config.knobs:
        return problems
    changed = knobs.with_knobs(problems, config.knobs)
    for problem, before in zip(changed, problems, strict=True):
        if problem is not before:
            try:
                jax.eval_shape(problem.testbed, np.uint32(0))
            except Exception as error:
                why = plugins.reason(error).removeprefix("ValueError: ")
                raise UsageError(f"`knobs` {' '.join(config.knobs)}: {problem.name} refuses them: {why}.") from error
    return changed


def _try_out(config: ArenaConfig, contestants: Contestants) -> Iterator[Failure]:
    """The first rounds of every plug-in's problem, and then of every plug-in's method on every problem."""
    texts = [asdict(plugin) for plugin in contestants.plugins]
    texts = [each for each in texts if each["file"] not in {failure.file for failure in contestants.failures}]

    def attempt(method: str, problem: str) -> str | None:
        return plugins.trial({"plugins": texts, "method": method, "problem": problem}, config.time_limit)

    unfit = set()
    for problem in contestants.problems:
        owner = contestants.owner(problem)
        if owner is not None and (why := attempt(TRIAL_METHOD, problem.name)):
            unfit.add(problem.name)
            yield Failure(owner[1], owner[0], why, problem=problem.name)
    for problem, method in contestants.pairs():
        owner = contestants.owner(method)
        if owner is not None and problem.name not in unfit and (why := attempt(method.name, problem.name)):
            yield Failure(owner[1], owner[0], why, problem=problem.name, method=method.name)
