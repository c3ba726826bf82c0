"""What takes part in the arena: a method and a problem. Plug-ins make the same two objects. No jax here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness.methods import find, is_shared

LARGEST_WINDOW = 64
PLUGIN_COLOUR = "#0000ff"


@dataclass(frozen=True)
class ArenaMethod:
    """A method of the arena.

    - `name`: as on the command line; `label`, `colour`: as on the page (those of `harness.methods` have theirs there).
    - `build`: `(testbed, rate, window, **options) -> Online`. The rate is a traced number, and so is the window: a
      smoother needs `capacity=LARGEST_WINDOW`. It raises `smoothfbo.NotAvailable`, with a sentence, where the method
      does not apply. The arena itself adds the normalised step rule behind the optimiser.
    - `windows`: the windows to try; `(1,)` is a method without one, which gets more rates in their place.
    - `static_window`: `build` gets the window as a Python integer, and every window is compiled on its own.
    - `is_scaled`: its steps do not grow with the gradient (Adam, RMSprop): also for plain steps its rates are lengths.
    - `options`: more numbers for `build`. Methods with the same `build` and the same names of options share a program.
    - `is_reference`: shown beside the others and not ranked, such as what knows the truth.
    - `untuned`: a method without anything to tune: the rate, in units of its own, at which it is reported, whatever the
      tuning seeds say. It is also run at a third, a tenth, three and ten times that, for the range of rates that work.
    """

    name: str
    build: Callable[..., Any]
    label: str = ""
    colour: str = ""
    windows: tuple[int, ...] = (1,)
    static_window: bool = False
    is_scaled: bool = False
    options: Mapping[str, float] = field(default_factory=dict)
    is_reference: bool = False
    untuned: float | None = None

    def __post_init__(self) -> None:
        _require_name("ArenaMethod", self.name)
        if not callable(self.build):
            raise UsageError(
                f"build of method {self.name} must be a function (testbed, rate, window), got {self.build!r}."
            )
        if not self.windows or not all(isinstance(w, int) and 1 <= w <= LARGEST_WINDOW for w in self.windows):
            raise UsageError(
                f"windows of method {self.name} must be integers between 1 and {LARGEST_WINDOW}, got {self.windows!r}."
            )
        if self.untuned is not None and not 0 < self.untuned < float("inf"):
            raise UsageError(f"untuned of method {self.name} must be a positive number, got {self.untuned!r}.")

    @property
    def description(self) -> dict[str, Any]:
        """What the page needs to know."""
        known = find(self.name) if is_shared(self.name) else None
        return {
            "name": self.name,
            "label": self.label or (known.label if known else self.name),
            "colour": self.colour or (known.colour if known else PLUGIN_COLOUR),
            "is_dashed": known.is_dashed if known else False,
            "is_reference": self.is_reference,
            "untuned": self.untuned,
        }


@dataclass(frozen=True)
class ArenaProblem:
    """A problem of the arena.

    - `name`: as on the command line; `label`: as on the page; `note`: a sentence beside its results.
    - `build`: `(seed, **knobs) -> AbstractTestbed`. The seed is a traced integer and draws the instance.
    - `knobs`: what `build` takes beside the seed, with the values of the arena: numbers, whole numbers or words. The
      option `--knobs` changes them. The arena's own problems have noise, dimension, drift and period.
    - `rates`: the smallest and the largest rate to try with plain steps, λ − rate·g̃.
    - `lengths`: the same for normalised steps, λ − length·g̃/‖g̃‖.
    - `without`: names of methods that would take too long on it.
    - `stride`: where the exact objective costs more than learning, it is evaluated so many times less often.
    """

    name: str
    build: Callable[..., Any]
    rates: tuple[float, float]
    lengths: tuple[float, float]
    label: str = ""
    note: str = ""
    without: tuple[str, ...] = ()
    stride: int = 1
    knobs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_name("ArenaProblem", self.name)
        if not callable(self.build):
            raise UsageError(f"build of problem {self.name} must be a function of the seed, got {self.build!r}.")
        for name in ("rates", "lengths"):
            value = getattr(self, name)
            if not (isinstance(value, tuple) and len(value) == 2 and 0 < value[0] < value[1] < float("inf")):
                raise UsageError(f"{name} of problem {self.name} must be two rising positive numbers, got {value!r}.")

    def testbed(self, seed: Any, **knobs: Any) -> Any:
        """The instance of this seed; knobs that are not given have the problem's own values."""
        return self.build(seed, **{**self.knobs, **knobs})

    @property
    def description(self) -> dict[str, Any]:
        """What the page needs to know."""
        return {"name": self.name, "label": self.label or self.name, "note": self.note, "knobs": dict(self.knobs)}


def _require_name(kind: str, name: Any) -> None:
    allowed = "letters, digits and dashes"
    if not isinstance(name, str) or not name or not all(letter.isalnum() or letter == "-" for letter in name):
        raise UsageError(f"the name of an {kind} must be made of {allowed}, got {name!r}.")
