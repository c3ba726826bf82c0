"""The stream learner once more, in NumPy: raw rows in place of second moments, differences in place of derivatives."""

import numpy as np


def column_moments(rows):
    mean = rows.mean(axis=0)
    spread = rows.std(axis=0)
    return mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)


def weighted_fit(x, y, weight, ridge):
    """argmin Σ weight ½(y − xw)² + ½ridge‖w‖², weights summing to one; solved as least squares, not by its moments."""
    root = np.sqrt(weight)[:, None]
    a = np.concatenate([root * x, np.sqrt(ridge) * np.eye(x.shape[1])])
    b = np.concatenate([root[:, 0] * y, np.zeros(x.shape[1])])
    return np.linalg.lstsq(a, b, rcond=None)[0]


def softmax(v):
    e = np.exp(v - v.max())
    return e / e.sum()


def rate_weights(blocks, block, rates):
    """One row per rate: the weight of every past row, oldest first, summing to one."""
    retention = [1 - 2.0**-k for k in range(rates - 1)] + [1.0]
    lag = np.repeat(np.arange(blocks)[::-1], block).astype(float)
    raw = np.stack([np.where(lag == 0, 1.0, rho**lag) for rho in retention])
    return raw / raw.sum(axis=1, keepdims=True)


def smoothfbo_regression(x, y, *, block, rates, smoothing, step, limit=1.0, depth=6.0, ridge=1e-3):
    """Predictions from block 1 on, and the log-weights used for them; no missing values, no clipping."""
    total = len(y) // block
    outer, gradients, predictions, played = np.zeros(rates), [], [], []
    for t in range(1, total):
        past, new = slice(0, t * block), slice(t * block, (t + 1) * block)
        shares = rate_weights(t, block, rates)

        def objective_in_units(rows, outer, past=past, new=new, shares=shares):
            mean, spread = column_moments(x[rows])
            centre, scale = y[rows].mean(), y[rows].std()
            z = np.c_[(x - mean) / spread, np.ones(len(x))]
            goal = (y - centre) / scale
            w = weighted_fit(z[past], goal[past], softmax(outer) @ shares, ridge)
            return z[new] @ w * scale + centre

        prediction = objective_in_units(past, outer)  # units of the past
        predictions.append(prediction)
        played.append(outer)
        loss = np.mean((prediction - y[new]) ** 2)

        def relative_loss(outer, new=new, t=t, loss=loss, f=objective_in_units):
            return np.mean((f(slice(0, (t + 1) * block), outer) - y[new]) ** 2) / loss

        e = 1e-5 * np.eye(rates)
        slope = np.array([(relative_loss(outer + d) - relative_loss(outer - d)) / 2e-5 for d in e])
        gradients.append(slope / softmax(outer))
        average = np.sum(gradients[-smoothing:], axis=0) / smoothing
        outer = outer - step * average / (1 + np.abs(average).max() / limit)
        outer = np.clip(outer - outer.max(), -depth, 0)
    return np.concatenate(predictions), np.array(played)
