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


def row_by_row(x, y, known, past, past_y, past_weight, ridge):
    """Every row by a ridge regression on the past and the known rows before it: argmin Σ w(y − xc)² + r‖c‖²."""
    out = []
    for r in range(len(x)):
        use = np.flatnonzero(known[:r] > 0)
        rows, goals = np.concatenate([past, x[use]]), np.concatenate([past_y, y[use]])
        root = np.sqrt(np.concatenate([past_weight, known[use]]))[:, None]
        a = np.concatenate([root * rows, np.sqrt(ridge) * np.eye(x.shape[1])])
        b = np.concatenate([root[:, 0] * goals, np.zeros(x.shape[1])])
        out.append(x[r] @ np.linalg.lstsq(a, b, rcond=None)[0])
    return np.array(out)


class Rules:
    """Bernstein, polynomial and shared mixtures of experts, row by row, from the formulas."""

    def __init__(self, count, retention=0.998, share=0.01):
        self.count, self.retention, self.share = count, retention, share
        self.sums, self.squares, self.largest = (np.zeros((2, count)) for _ in range(3))
        self.weights, self.scale, self.rows = np.full(count, 1 / count), 0.0, 0

    def rates(self):
        differs = self.largest[0] > 0
        rate = np.zeros(self.count)
        for k in np.flatnonzero(differs):
            rate[k] = min(1 / self.largest[0, k], np.sqrt(np.log(self.count) / self.squares[0, k]))
        return np.where(differs, rate, rate.max())

    def mix(self, x, finite=None):
        """Predictions of the three rules for one row."""
        finite = np.ones(self.count, bool) if finite is None else finite
        equal, rate = np.ones(self.count), self.rates()
        bernstein = rate * np.exp(rate * self.sums[0] - np.max(rate * self.sums[0])) if rate.any() else equal
        polynomial = np.maximum(self.sums[1], 0) / np.maximum(self.largest[1].max() + self.squares[1], 1e-300)
        polynomial = polynomial if polynomial.any() else equal
        shared = (1 - self.share) * self.weights + self.share / self.count
        self.used = [np.where(finite, w, 0) / np.sum(np.where(finite, w, 0)) for w in (bernstein, polynomial, shared)]
        self.x, self.finite = np.where(finite[:, None], x, 0), finite
        return np.stack([w @ self.x for w in self.used])

    def learn(self, p, y, allowed=np.inf):
        """Errors above `allowed` weigh less."""
        for i, size in ((0, np.abs), (1, np.square)):
            weight = min(1, allowed / max(np.sqrt(np.sum((p[i] - y) ** 2)), 1e-300))
            r = np.where(self.finite, weight * (p[i] - self.x) @ (2 * (p[i] - y)), 0)
            r = np.where(np.abs(r) > 1e-12 * np.sum((p[i] - y) ** 2), r, 0)
            self.squares[i] = self.retention * self.squares[i] + r**2
            self.largest[i] = np.maximum(self.retention * self.largest[i], size(r))
            penalty = self.rates() * r**2 if i == 0 else 0
            self.sums[i] = self.retention * self.sums[i] + r - penalty
        self.rows += 1
        self.scale += max(1 / 256, 1 / self.rows) * (np.sum((p[2] - y) ** 2) - self.scale)
        losses = np.sum((np.where(self.finite[:, None], self.x, p[2]) - y) ** 2, axis=1)
        start = (1 - self.share) * self.weights + self.share / self.count
        raw = start * np.exp(-np.minimum(losses / self.scale, 50) / 2)
        self.weights = raw / raw.sum()


def lost(experts, targets, known, t, retention):
    """What every expert has lost up to row t, and the number of rows; older ones count less."""
    past = np.flatnonzero(known[:t])
    errors = np.sum((experts[:, past] - targets[past]) ** 2, axis=2)
    errors = np.where(np.isnan(errors), np.nanmax(errors, axis=0, initial=0), errors)
    weights = retention ** np.arange(len(past))[::-1]
    return errors @ weights, weights.sum()


def followed(experts, targets, known, t, retention):
    """The mixture at row t that follows the experts that were best lately."""
    finite, (losses, count) = np.isfinite(experts[:, t]).all(axis=1), lost(experts, targets, known, t, retention)
    best = losses[finite].min()
    weights = np.where(finite, np.exp(-(losses - best) / max(best / max(count, 1), 1e-20)), 0)
    return weights @ np.nan_to_num(experts[:, t]) / weights.sum()


def aggregate(experts, targets, known, block, trusted=(), since=0):
    """The recommended prediction of rows (experts × rows × columns), and with one column the two stacks.

    From the rows `trusted` on, expert `since` is another one than before. It is as if it had predicted what the
    expert predicted that is ahead of all others there.
    """
    count, total, columns = experts.shape
    rules, second = Rules(count), Rules(7 if columns == 1 else 5)
    memories, ridges = (100, 1000), (0.1, 0.01)
    moments, products = [np.zeros((count, count))] * 2, [np.zeros(count)] * 2
    histories, out = {kept: experts.copy() for kept in (0.9, 0.99)}, []
    for t in range(total):
        if t % block == 0:
            within, scale = [], rules.scale
        if t in trusted:
            for kept, history in histories.items():
                ahead = lost(history, targets, known, t, kept)[0].argmin()
                history[since, :t] = history[ahead, :t]
            rules.sums[:, since] = rules.sums.max(axis=1)
            rules.weights[since] = rules.weights.max()
            rules.weights = rules.weights / rules.weights.sum()
            begun, second = second, Rules(second.count)
            second.scale, second.rows = begun.scale, begun.rows
        finite = np.isfinite(experts[:, t]).all(axis=1)
        p = rules.mix(experts[:, t], finite)
        candidates = [followed(history, targets, known, t, kept) for kept, history in histories.items()]
        candidates = np.concatenate([p, candidates])
        if columns == 1:
            d = np.where(finite, np.where(finite[:, None], experts[:, t], 0)[:, 0] - p[0, 0], 0)
            stacks = []
            for i in range(2):
                size = np.trace(moments[i]) / count
                a = moments[i] + sum((w * np.outer(e, e) for e, _, w in within), np.zeros((count, count)))
                b = products[i] + sum((w * e * g for e, g, w in within), np.zeros(count))
                c = np.zeros(count)
                if size > 1e-20:
                    c = np.linalg.solve(a + (ridges[i] * size + 10 * scale) * np.eye(count), b)
                stacks.append(p[0] + np.clip(c @ d, 0.3 * d.min(), 0.3 * d.max()))
            candidates = np.concatenate([candidates, stacks])
        q = second.mix(candidates)
        out.append(q.mean(axis=0))
        if known[t]:
            error = np.sqrt(np.sum((p[0] - targets[t]) ** 2))
            allowed = np.inf if rules.rows < 8 else 3 * np.sqrt(rules.scale)
            if columns == 1:
                within.append((d, (targets[t] - p[0])[0], min(1, allowed / max(error, 1e-300))))
            rules.learn(p, targets[t], allowed * 5 / 3)
            second.learn(q, targets[t])
        if columns == 1 and t % block == block - 1:
            for i in range(2):
                kept = (1 - 1 / memories[i]) ** block
                moments[i] = kept * moments[i] + sum(
                    (w * np.outer(e, e) for e, _, w in within), np.zeros((count, count))
                )
                products[i] = kept * products[i] + sum((w * e * g for e, g, w in within), np.zeros(count))
    return np.array(out)


class LateRules:
    """The three rules with targets that come late, a whole block at once; a row counts for c of a row."""

    def __init__(self, prior, part):
        self.prior, self.part, self.count = prior, part, len(prior)
        self.sums, self.squares, self.largest = (np.zeros((2, self.count)) for _ in range(3))
        self.shared, self.scale, self.rows = prior, 0.0, 0

    def mix(self, x):
        rate = self.rates()
        bernstein, polynomial = np.ones(self.count), np.ones(self.count)
        if rate.any():
            rate = np.where(self.largest[0] > 0, rate, rate.max())
            bernstein = rate * np.exp(rate * self.sums[0] - np.max(rate * self.sums[0]))
        if (self.sums[1] > 0).any():
            polynomial = np.maximum(self.sums[1], 0) / (self.largest[1].max() + self.squares[1])
        weights = [self.prior * bernstein, self.prior * polynomial, 0.99 * self.shared + 0.01 * self.prior]
        return np.stack([w @ x / w.sum() for w in weights])

    def rates(self):
        pairs = zip(self.largest[0], self.squares[0], strict=True)
        return np.array([min(1 / b, np.sqrt(np.log(self.count) / v)) if b > 0 else 0.0 for b, v in pairs])

    def learn(self, p, x, y, large):
        """What was predicted by the rules and the experts, of the rows of a block, and their targets."""
        n, c = len(y), self.part
        if n == 0:
            return
        allowed = np.inf if self.rows < 8 else large * np.sqrt(self.scale)
        kept = 0.998 ** (c * n)
        for i, size in ((0, np.abs), (1, np.square)):
            weight = np.minimum(1, allowed / np.maximum(np.abs(p[i] - y), 1e-300))
            r = weight * 2 * (p[i] - y) * (p[i] - x)
            r = np.where(np.abs(r) > 1e-12 * (p[i] - y) ** 2, r, 0)
            self.largest[i] = np.maximum(kept * self.largest[i], size(r).max(axis=1))
            self.squares[i] = kept * self.squares[i] + c * (r**2).sum(axis=1)
            penalty = self.rates() * c * (r**2).sum(axis=1) if i == 0 else 0
            self.sums[i] = kept * self.sums[i] + c * r.sum(axis=1) - penalty
        self.rows += n
        self.scale += min(1, max(c * n / 256, n / self.rows)) * (np.mean((p[2] - y) ** 2) - self.scale)
        share = 1 - 0.99 ** (c * n)
        losses = c * np.minimum((x - y) ** 2 / self.scale, 50).sum(axis=1) / 2
        raw = ((1 - share) * self.shared + share * self.prior) * np.exp(-losses)
        self.shared = raw / raw.sum()


def late_aggregate(experts, targets, block, delay, prior, part, first, present=None, since=0, shortest=0):
    """The recommended prediction of one output: block i is mixed after the blocks up to i - delay - 1 were judged.

    Blocks before `first` were predicted before anything was learnt, and are not judged. Rows without a target are not.
    For each block of `present`, the experts are judged by what they would say of it when it is learnt, which stands
    there; expert `since` is another one from then on, and predictions of the `delay` blocks after it do not count.
    """
    count, blocks = len(experts), experts.shape[1] // block
    present, outdated = present or {}, 0
    rules, second = LateRules(prior, part), LateRules(np.ones(7) / 7, part)
    losses, rows = np.zeros((2, count)), np.zeros(2)
    moments, products = np.zeros((2, count, count)), np.zeros((2, count))
    kept, out = {}, []

    def advise(x):
        p = rules.mix(x)
        candidates = list(p)
        for m in range(2):
            scale = max(losses[m].min() / max(rows[m], 1), 1e-20)
            w = prior * np.exp(-(losses[m] - losses[m].min()) / scale)
            candidates.append(w @ x / w.sum())
        d = x - p[0]
        for m, ridge in enumerate((0.1, 0.01)):
            size = np.trace(moments[m]) / count
            c = np.zeros(count)
            if size > 1e-20:
                c = np.linalg.solve(moments[m] + (ridge * size + 10 * rules.scale) * np.eye(count), products[m])
            candidates.append(p[0] + np.clip(c @ d, 0.3 * d.min(axis=0), 0.3 * d.max(axis=0)))
        candidates = np.array(candidates)
        return x, p, d, candidates, second.mix(candidates)

    def judge(advice, y, part):
        use = ~np.isnan(y)
        x, p, d, candidates, q = (predicted[:, use] for predicted in advice)
        y = y[use]
        number = part * len(y)
        for m, (retention, memory) in enumerate(((0.9, 100), (0.99, 1000))):
            losses[m] = retention**number * losses[m] + part * ((x - y) ** 2).sum(axis=1)
            rows[m] = retention**number * rows[m] + number
            allowed = np.inf if rules.rows < 8 else 3 * np.sqrt(rules.scale)
            weight = part * np.minimum(1, allowed / np.maximum(np.abs(y - p[0]), 1e-300))
            older = (1 - 1 / memory) ** number
            moments[m] = older * moments[m] + (d * weight) @ d.T
            products[m] = older * products[m] + (d * weight) @ (y - p[0])
        rules.learn(p, x, y, 5)
        second.learn(q, candidates, y, np.inf)

    for i in range(blocks):
        kept[i] = advise(experts[:, i * block : (i + 1) * block])
        out.append(kept[i][-1].mean(axis=0))
        if i - delay < first:
            continue
        advice, y = kept.pop(i - delay), targets[(i - delay) * block : (i - delay + 1) * block]
        if i - delay in present:
            x = present[i - delay].copy()
            x[since] = x[shortest]
            scales = rules.scale, second.scale
            rules.part = 1.0
            judge(advise(x), y, 1.0)
            rules.part, rules.scale = part, scales[0]
            rules.sums[:, since], rules.shared[since] = rules.sums.max(axis=1), rules.shared.max()
            rules.shared = rules.shared / rules.shared.sum()
            losses[:, since] = losses.min(axis=1)
            begun, second = second, LateRules(np.ones(7) / 7, 1.0)
            second.scale, second.rows = scales[1], begun.rows
            *_, candidates, q = advise(x)
            second.learn(q[:, ~np.isnan(y)], candidates[:, ~np.isnan(y)], y[~np.isnan(y)], np.inf)
            second.part, second.scale = part, scales[1]
            outdated = delay
        elif outdated:
            outdated -= 1
        else:
            judge(advice, y, part)
    return np.concatenate(out)
