"""A whole pass through a small perceptron as one GPU kernel, and its gradient as another.

A product of a 256 × 32 batch is as short as the launch of a kernel. A pass layer by layer is about eight kernels, and
what is between the layers goes through the device's memory; here it stays in the registers of a block of samples.

    h_l = W_lᵀ σ(h_{l−1}) + b_l,                           σ(h_0) = x
    g_{l−1} = σ'(h_{l−1}) ⊙ W_l g_l,   ∂W_l = σ(h_{l−1}) g_lᵀ,   ∂b_l = Σ_samples g_l

The gradient's kernel computes the h_l again. Sizes are padded to powers of two, as Triton wants them; products have the
device's default precision, as XLA's have. Without a GPU the kernels are interpreted, which is slow, and the way to test
them. They can be differentiated once, in reverse mode.
"""

from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal
from jax.experimental import pallas
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float, Int

BLOCK = 64  # samples that a program of the kernel takes
WARPS = 4
SMALLEST_SIZE = 16  # size that Triton multiplies


class Form(NamedTuple):
    """What of a perceptron is no array."""

    sizes: tuple[int, ...]
    leak: float


class _Layer(NamedTuple):
    inputs: int
    outputs: int
    weight: int  # where its weights begin in the vector of parameters
    bias: int


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fused(
    form: Form, parameters: Float[Array, " parameters"], x: Float[Array, "inputs samples"]
) -> Float[Array, "outputs samples"]:
    """The perceptron of these parameters, of the columns of x."""
    return _call(_values, form, (parameters, x), [_of_samples(form.sizes[-1], x)], "perceptron")[0]


def _first(form: Form, parameters: CustomVJPPrimal, x: CustomVJPPrimal) -> tuple[Array, tuple[Any, ...]]:
    """What is not perturbed needs no gradient: that is known now, and kept as () or None, which are no arrays."""
    wanted = tuple(() if each.perturbed else None for each in (parameters, x))
    return fused(form, parameters.value, x.value), (parameters.value, x.value, wanted)


def _second(form: Form, kept: tuple[Any, ...], cotangent: Array) -> tuple[Array | None, Array | None]:
    parameters, x, wanted = kept
    of_parameters, of_x = (each is not None for each in wanted)
    results = [_of_blocks(parameters, x)] * of_parameters + [_of_samples(x.shape[0], x)] * of_x
    found = _call(partial(_gradients, of_parameters, of_x), form, (parameters, x, cotangent), results, "gradient")
    # A part of each block of samples, added in a fixed order: atomic additions would give other bits each time.
    total = reduce(jnp.add, [found[0][block] for block in range(_blocks(x))]) if of_parameters else None
    return total, found[-1] if of_x else None


fused.defvjp(_first, _second, symbolic_zeros=True)


class _Result(NamedTuple):
    shape: jax.ShapeDtypeStruct
    block: Any  # the part of it that belongs to a block of samples


def _of_samples(size: int, x: Array) -> _Result:
    """A matrix with as many columns as x."""
    block = pallas.BlockSpec((size, _width(x)), lambda index: (0, index))
    return _Result(jax.ShapeDtypeStruct((size, x.shape[1]), x.dtype), block)


def _of_blocks(parameters: Array, x: Array) -> _Result:
    """A vector of parameters for each block of samples."""
    block = pallas.BlockSpec((None, *parameters.shape), lambda index: (index, 0))
    return _Result(jax.ShapeDtypeStruct((_blocks(x), *parameters.shape), parameters.dtype), block)


def _call(kernel: Any, form: Form, arguments: tuple[Array, ...], results: list[_Result], name: str) -> list[Array]:
    """The kernel, once for each block of samples. Arguments are the parameters, x, and matrices with its columns."""
    parameters, x, *others = arguments
    return pallas.pallas_call(
        partial(kernel, form, x.shape[1]),
        grid=(_blocks(x),),
        in_specs=[
            pallas.BlockSpec(parameters.shape, lambda _: (0,)),
            *(_of_samples(each.shape[0], x).block for each in (x, *others)),
        ],
        out_specs=[each.block for each in results],
        out_shape=[each.shape for each in results],
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name=name,
    )(*arguments)


def _values(form: Form, samples: int, parameters: Any, x: Any, values: Any) -> None:
    before = _passed(form, _weights(form, parameters), _Columns.of(x, samples).read(x))
    _Columns.of(values, samples).write(values, before[-1])


def _gradients(of_parameters: bool, of_x: bool, form: Form, samples: int, *refs: Any) -> None:
    parameters, x, cotangent, *results = refs
    weights, inputs = _weights(form, parameters), _Columns.of(x, samples).read(x)
    before = _passed(form, weights[:-1], inputs)
    gradient = _Columns.of(cotangent, samples).read(cotangent)
    for number, layer in reversed(list(enumerate(_layers(form)))):
        if of_parameters:
            below = _activated(form, before[number - 1]) if number else inputs
            index, mask = _matrix(layer)
            triton.store(results[0].at[index], triton.dot(below, gradient, trans_a=True), mask=mask)
            index, mask = _vector(layer)
            triton.store(results[0].at[index], jnp.sum(gradient, axis=0, keepdims=True), mask=mask)
        if number or of_x:
            gradient = triton.dot(gradient, weights[number][0], trans_b=True)
        if number:
            gradient = jnp.where(_is_on(form, before[number - 1]), gradient, form.leak * gradient)
    if of_x:
        _Columns.of(x, samples).write(results[-1], gradient)


def _passed(form: Form, weights: list[tuple[Array, Array]], x: Array) -> list[Array]:
    """h_1, h_2, … with samples as rows, before they are activated."""
    before = []
    for number, (weight, bias) in enumerate(weights):
        x = triton.dot(_activated(form, x) if number else x, weight) + bias
        before.append(x)
    return before


def _is_on(form: Form, x: Array) -> Bool[Array, "..."]:
    """As `jax.nn.relu` and `jax.nn.leaky_relu` have it at zero."""
    return x >= 0 if form.leak else x > 0


def _activated(form: Form, x: Array) -> Array:
    return jnp.where(_is_on(form, x), x, form.leak * x)


def _layers(form: Form) -> list[_Layer]:
    layers, position = [], 0
    for inputs, outputs in pairwise(form.sizes):
        layers.append(_Layer(inputs, outputs, position, position + inputs * outputs))
        position += (inputs + 1) * outputs
    return layers


def _weights(form: Form, parameters: Any) -> list[tuple[Array, Array]]:
    """Weights and bias of every layer, padded with zeros."""

    def read(index: Array, mask: Array) -> Array:
        return triton.load(parameters.at[index], mask=mask, other=0)

    return [(read(*_matrix(layer)), read(*_vector(layer))) for layer in _layers(form)]


def _matrix(layer: _Layer) -> tuple[Int[Array, "inputs outputs"], Bool[Array, "inputs outputs"]]:
    """Where the weights are among the parameters, and which of them are not padding."""
    i, j = _rows(_padded(layer.inputs)), _columns(_padded(layer.outputs))
    return layer.weight + i * layer.outputs + j, (i < layer.inputs) & (j < layer.outputs)


def _vector(layer: _Layer) -> tuple[Int[Array, "1 outputs"], Bool[Array, "1 outputs"]]:
    j = _columns(_padded(layer.outputs))
    return layer.bias + j, j < layer.outputs


class _Columns(NamedTuple):
    """A block of a matrix whose columns are samples; it is read and written with samples as rows."""

    place: tuple[Int[Array, "samples size"], Int[Array, "samples size"]]
    mask: Bool[Array, "samples size"]

    @classmethod
    def of(cls, ref: Any, samples: int) -> "_Columns":
        size, width = ref.shape
        i, j = _rows(width), _columns(_padded(size))
        mask = (pallas.program_id(0) * width + i < samples) & (j < size)
        return cls((jnp.broadcast_to(j, mask.shape), jnp.broadcast_to(i, mask.shape)), mask)

    def read(self, ref: Any) -> Array:
        return triton.load(ref.at[self.place], mask=self.mask, other=0)

    def write(self, ref: Any, value: Array) -> None:
        triton.store(ref.at[self.place], value, mask=self.mask)


def _rows(size: int) -> Int[Array, "size 1"]:
    return jax.lax.broadcasted_iota(jnp.int32, (size, 1), 0)


def _columns(size: int) -> Int[Array, "1 size"]:
    return jax.lax.broadcasted_iota(jnp.int32, (1, size), 1)


def _padded(size: int) -> int:
    return max(SMALLEST_SIZE, 1 << (size - 1).bit_length())


def _width(x: Array) -> int:
    """Samples of a block."""
    return min(BLOCK, _padded(x.shape[1]))


def _blocks(x: Array) -> int:
    return -(-x.shape[1] // BLOCK)
