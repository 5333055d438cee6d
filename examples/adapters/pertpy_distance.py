"""The Sinkhorn divergence as a distance of pertpy, and the distances of all pairs of groups in one call."""

import itertools

import numpy as np
import pandas as pd
from pertpy.tools import Distance
from pertpy.tools._distances._distances import AbstractDistance

import monge


class SinkhornDivergence(AbstractDistance):
    """`eps_relative` is eps over the mean cost of the two groups; the square root has the unit of the coordinates."""

    def __init__(self, eps_relative=0.05):
        super().__init__()
        self.accepts_precomputed = False
        self.eps_relative = eps_relative

    def __call__(self, X, Y, **options):
        X, Y = (np.asarray(v, dtype=np.float64) for v in (X, Y))
        return float(np.sqrt(max(0, monge.sinkhorn_divergence(X, Y, eps_relative=self.eps_relative, **options).value)))

    def from_precomputed(self, P, idx, **options):
        raise NotImplementedError("the divergence reads points, from which it makes costs as it needs them")


def distance(eps_relative=0.05, **where):
    """A pertpy Distance with this metric: `pairwise`, `bootstrap`, `onesided_distances` work as with pertpy's own."""
    made = Distance("wasserstein", **where)
    made.metric, made.metric_fct = "sinkhorn_divergence", SinkhornDivergence(eps_relative)
    return made


def pairwise_wasserstein(data, groupby, obsm_key="X_pca", reg="auto"):
    """<C, P> of every pair of groups: one batch, whose problems share the cores."""
    groups = list(data.obs[groupby].unique())
    clouds = [np.asarray(data.obsm[obsm_key][np.asarray(data.obs[groupby] == group)], float) for group in groups]
    pairs = list(itertools.combinations(range(len(groups)), 2))
    batch = monge.solve_sample_batch([clouds[i] for i, _ in pairs], [clouds[j] for _, j in pairs], reg=reg)
    table = np.zeros((len(groups), len(groups)))
    for (i, j), value in zip(pairs, batch.value_linear):
        table[i, j] = table[j, i] = value
    return pd.DataFrame(table, groups, groups)


if __name__ == "__main__":
    import anndata

    random = np.random.default_rng(0)
    data = anndata.AnnData(random.random((300, 2)), obs={"drug": np.repeat(["none", "weak", "strong"], 100)})
    data.obs_names_make_unique()
    data.obsm["X_pca"] = random.normal(size=(300, 5)) + np.repeat([0.0, 0.5, 2.0], 100)[:, None]
    divergences = distance(obsm_key="X_pca").pairwise(data, groupby="drug", show_progressbar=False)
    costs = pairwise_wasserstein(data, "drug")
    print(divergences.round(2), costs.round(2), sep="\n")
