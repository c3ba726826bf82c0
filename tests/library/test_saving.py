"""A state comes back to the bit, for the algorithm that it belongs to and for no other."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import smoothfbo as sf

PROBLEM = sf.Problem(lambda outer, v, x, y: (v - outer * y) ** 2, lambda outer, v, x, y: (v - y) ** 2)


def source(round, key):
    x = jax.random.normal(key, (2, 8))
    return sf.Data(sf.Samples(x[0], jnp.sin(x[0])), sf.Samples(x[1], jnp.sin(x[1])))


def algorithm(*, rate=0.1, window=5, width=4, steps=2, problem=PROBLEM, ridge=0.0, power=3):
    network = sf.Network(
        lambda key: eqx.nn.MLP("scalar", "scalar", width, 1, key=key), optax.adam(1e-2), steps, batch_size=4
    )
    linear = sf.Linear(lambda x: jnp.stack([x, x**power]), ridge=ridge)
    optimiser = optax.chain(sf.window_average(window), optax.sgd(rate))
    return sf.Online(problem, sf.Functional(network, linear), optimiser)


def started(algorithm, outer=0.0):
    return sf.start(algorithm, source, jnp.asarray(outer), jax.random.key(0))


def test_a_state_comes_back_to_the_bit(tmp_path):
    path = tmp_path / "state.npz"
    state, _ = sf.run(algorithm(), source, state=started(algorithm()), rounds=2)
    sf.save(path, state, algorithm())
    found = sf.load(path, algorithm(), started(algorithm(), 1.0))
    assert jax.tree.structure(found) == jax.tree.structure(state)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert [each.name for each in tmp_path.iterdir()] == ["state.npz"]  # nothing is left over
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode  # whoever may read other files may read this one
    assert all(np.load(path, allow_pickle=False)[name].dtype.kind in "uU" for name in np.load(path).files)


OTHERS = {
    "rate": ({"rate": 0.2}, r"step_size = -0.1, here .*step_size = -0.2"),
    "window": ({"window": 6}, r"= 5, here .*= 6"),
    "steps": ({"steps": 3}, r"estimator.inner.steps = 2, here algorithm.estimator.inner.steps = 3"),
    "width": ({"width": 5}, r"width = 4, here .*width = 5"),
    "ridge": ({"ridge": 0.5}, r"ridge = 0.0, here .*ridge = 0.5"),
    "traced ridge": ({"ridge": jnp.asarray(0.5)}, r"ridge = 0.0, here .*ridge = float64\[\] 0.5"),
    "constant": ({"power": 2}, r"power = 3, here .*power = 2"),
    "loss": ({"problem": sf.Problem(lambda outer, v, x, y: (v - outer * y) ** 4, PROBLEM.outer_loss)}, r"\[2\], here"),
    "names": ({"problem": sf.Problem(PROBLEM.inner_loss, lambda outer, v, x, y: jnp.abs(v - y))}, r"'abs'"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_state_of_another_algorithm_is_refused(tmp_path, name):
    options, difference = OTHERS[name]
    state = {"anything": jnp.zeros(3)}
    sf.save(tmp_path / "state", state, algorithm())
    with pytest.raises(ValueError, match="holds the state of another algorithm: there .*" + difference):
        sf.load(tmp_path / "state", algorithm(**options), state)


class Shifted:
    """A loss that is no pytree: its number is an attribute."""

    def __init__(self, shift):
        self.shift = shift

    def __call__(self, outer, v, x, y):
        return (v - y - self.shift) ** 2

    def method(self, outer, v, x, y):
        return (v - y - self.shift) ** 2


def closing_over(shift):
    return lambda outer, v, x, y: (v - y - shift) ** 2


def with_keyword(shift):
    return lambda outer, v, x, y, *, shift=shift: (v - y - shift) ** 2


@pytest.mark.parametrize(
    "loss",
    [
        lambda shift: jax.jit(closing_over(shift)),
        lambda shift: jax.checkpoint(jax.jit(closing_over(shift))),
        lambda shift: jax.custom_jvp(closing_over(shift)),
        lambda shift: functools.cache(closing_over(shift)),
        lambda shift: functools.partial(closing_over(shift)),
        with_keyword,
        Shifted,
        lambda shift: Shifted(shift).method,
    ],
)
def test_a_number_is_seen_in_whatever_a_loss_is_wrapped(tmp_path, loss):
    state = {"anything": jnp.zeros(3)}
    of = {shift: algorithm(problem=sf.Problem(loss(shift), PROBLEM.outer_loss)) for shift in (1.5, 2.5)}
    sf.save(tmp_path / "state", state, of[1.5])
    sf.load(tmp_path / "state", algorithm(problem=sf.Problem(loss(1.5), PROBLEM.outer_loss)), state)
    with pytest.raises(ValueError, match=r"there .*shift.* = 1.5, here .* = 2.5"):
        sf.load(tmp_path / "state", of[2.5], state)


def test_what_does_not_fit_or_is_damaged_is_refused(tmp_path):
    path = tmp_path / "state"
    state = {"a": jnp.zeros(3), "b": jnp.ones(2, jnp.bfloat16), "key": jax.random.key(5)}
    sf.save(path, state, None)
    found = sf.load(path, None, state)
    assert found["b"].dtype == jnp.bfloat16
    assert jax.random.key_data(found["key"]).tolist() == [0, 5]
    with pytest.raises(ValueError, match=r"state\['a'\] float64\[3\], here state\['a'\] float64\[4\]"):
        sf.load(path, None, {**state, "a": jnp.zeros(4)})
    with pytest.raises(ValueError, match=r"float64\[3\], here state\['a'\] float32\[3\]"):
        sf.load(path, None, {**state, "a": jnp.zeros(3, jnp.float32)})
    with pytest.raises(ValueError, match=r"there state.*, here nothing more"):
        sf.load(path, None, {"a": state["a"], "b": state["b"]})
    with np.load(path) as file:
        entries = {name: file[name] for name in file.files}
    with (tmp_path / "changed").open("wb") as changed:  # a valid archive, with other numbers
        np.savez(changed, **{**entries, "0": entries["0"] + np.uint8(1)})
    with pytest.raises(ValueError, match="its digest does not fit its content"):
        sf.load(tmp_path / "changed", None, state)
    content = bytearray(path.read_bytes())
    place = content.rindex(np.ones(2, jnp.bfloat16).tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged"):
        sf.load(path, None, state)
    path.write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"was not written by smoothfbo\.save, or is damaged"):
        sf.load(path, None, state)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "state"
    sf.save(path, jnp.zeros(2), None)

    class Broken:
        shape, dtype = (2,), np.dtype(float)

        def __array__(self, *arguments, **options):
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        sf.save(path, Broken(), None)
    np.testing.assert_array_equal(sf.load(path, None, jnp.ones(2)), jnp.zeros(2))
    assert len(list(tmp_path.iterdir())) == 1
