"""The paper's non-stationary regression (Section 6.1), measured against the exact answer."""
