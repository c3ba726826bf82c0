"""The small regression of the tests: four methods, two windows, two seeds."""

from smoothfbo.studies.regression.config import RegressionConfig

SMALL = RegressionConfig(
    methods=("fbo", "smooth-fbo", "uniform", "exact"), windows=(1, 5), baseline_windows=(5,), rounds=24, seeds=2,
    chunk=12, inputs=2, lags=3,
    width=8, batch=(8,), inner_steps=(2,), adjoint_steps=2, probe_draws=2, outer_rate=(5.0,), frequency=0.3,
)  # fmt: skip
