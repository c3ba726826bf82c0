"""Independent answers in NumPy float64: nothing here uses the library's code or automatic differentiation.

Weighted ridge regression with groups, everything in closed form:

    ℓ_in(λ, v, x, y) = ½ exp(λ_group(y)) (v − target)²      + penalty ½ρ‖θ‖² on h(x) = θᵀφ(x)
    ℓ_out(λ, v, x, y) = ½ (v − target)² + ½ μ (1 + v²) ‖λ‖²  (depends on λ explicitly, too)
"""

from dataclasses import dataclass

import numpy as np

MU = 0.3


def features(x):
    return np.stack([np.ones(len(x)), x[:, 0], np.sin(x[:, 1])], axis=1)


def outer_loss(outer, v, target):
    return 0.5 * (v - target) ** 2 + 0.5 * MU * (1 + v**2) * np.sum(outer**2)


def outer_slope(outer, v, target):
    """∂_v ℓ_out."""
    return v - target + MU * v * np.sum(outer**2)


@dataclass(frozen=True)
class Ridge:
    """One round of data and the ridge parameter."""

    x_in: np.ndarray
    y_in: np.ndarray
    group: np.ndarray
    x_out: np.ndarray
    y_out: np.ndarray
    ridge: float

    @staticmethod
    def draw(seed: int, *, n_in=40, n_out=30, groups=3, ridge=0.1) -> "Ridge":
        rng = np.random.default_rng(seed)
        x_in, x_out = rng.normal(size=(n_in, 2)), rng.normal(size=(n_out, 2))
        truth = lambda x: np.tanh(x[:, 0]) + 0.5 * x[:, 1]  # noqa: E731
        group = np.arange(n_in) % groups
        y_in = truth(x_in) + 0.5 * group + 0.1 * rng.normal(size=n_in)
        return Ridge(x_in, y_in, group, x_out, truth(x_out) + 0.1 * rng.normal(size=n_out), ridge)

    def system(self, outer):
        """A = mean e^λ φφᵀ + ρI and b = mean e^λ φ y, so that θ* = A⁻¹b."""
        phi, weight = features(self.x_in), np.exp(outer[self.group])
        a = (phi * weight[:, None]).T @ phi / len(phi) + self.ridge * np.eye(phi.shape[1])
        return a, phi.T @ (weight * self.y_in) / len(phi)

    def solution(self, outer):
        return np.linalg.solve(*self.system(outer))

    def objective(self, outer):
        v = features(self.x_out) @ self.solution(outer)
        return np.mean(outer_loss(outer, v, self.y_out))

    def explicit_at(self, outer, theta):
        v = features(self.x_out) @ theta
        return np.mean(1 + v**2) * MU * outer

    def outer_slope_at(self, outer, theta):
        """∇_θ L_out at fixed λ."""
        phi = features(self.x_out)
        return phi.T @ outer_slope(outer, phi @ theta, self.y_out) / len(phi)

    def cross_at(self, outer, theta, direction):
        """∂_λ ⟨∇_θ L_in(θ, λ), direction⟩."""
        phi, weight = features(self.x_in), np.exp(outer[self.group])
        per_sample = weight * (phi @ theta - self.y_in) * (phi @ direction) / len(phi)
        return np.array([per_sample[self.group == g].sum() for g in range(len(outer))])

    def adjoint(self, outer):
        """Coefficients of a* = −C⁻¹d in the features."""
        a, _ = self.system(outer)
        return -np.linalg.solve(a, self.outer_slope_at(outer, self.solution(outer)))

    def hypergradient(self, outer):
        theta = self.solution(outer)
        return self.explicit_at(outer, theta) + self.cross_at(outer, theta, self.adjoint(outer))


def central_differences(function, point, step=1e-5):
    gradient = np.zeros_like(point)
    for i in range(point.size):
        shift = np.zeros_like(point)
        shift[i] = step
        gradient[i] = (function(point + shift) - function(point - shift)) / (2 * step)
    return gradient


def windowed_means(gradients, window, *, discount=1.0, filled=False):
    """Hand-expanded sums: (1/W) Σ_{i<w} η^i g_{t−i} in float64, missing terms zero."""
    gradients = np.asarray(gradients, np.float64)
    means = []
    for t in range(len(gradients)):
        held = range(min(window, t + 1))
        total = sum(discount**i * gradients[t - i] for i in held)
        means.append(total / sum(discount**i for i in (held if filled else range(window))))
    return np.array(means)
