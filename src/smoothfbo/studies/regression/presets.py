"""Presets of the regression. No jax here.

demo: a minute; paper: all figures and tables; ablation: the paper's ranges; tune: on seeds that are not reported.
"""

from smoothfbo.studies.regression.config import DRIFTS, RegressionConfig
from smoothfbo.studies.regression.lanes import BATCH_USES
from smoothfbo.studies.regression.methods import METHODS

PRESETS = {
    "demo": RegressionConfig(
        rounds=400, seeds=4, windows=(1, 10, 100), methods=("fbo", "smooth-fbo", "recommended", "exact", "uniform")
    ),
    "paper": RegressionConfig(
        methods=METHODS,
        drift=DRIFTS,
        weights=("per-lag", "decay"),
        minibatch=BATCH_USES,
        sweep_rates=(0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0),
        paper_values=True,
        record_every=5,
    ),
    "ablation": RegressionConfig(
        methods=("fbo", "smooth-fbo"),
        windows=(1, 10, 100),
        inner_rate=(1e-4, 1e-3, 1e-2),
        outer_rate=(1e-3, 1e-2, 30.0),
        batch=(16, 32, 64, 128),
        inner_steps=(5, 10),
        seeds=5,
        record_every=10,
    ),
    "tune": RegressionConfig(
        methods=("uniform",),
        weights=("per-lag", "decay"),
        minibatch=BATCH_USES,
        seeds=4,
        first_seed=1_000,
        sweep_rates=(0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0),
        probe_draws=0,
        record_every=10,
    ),
}
