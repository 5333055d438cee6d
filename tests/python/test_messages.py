"""What is said of wrong arguments: one line that begins with the name that the caller used."""

import inspect
import re
import sys
import warnings

import matplotlib
import numpy as np
import pytest
from scipy.sparse import csr_array

import monge
import monge.plot
from conftest import assert_named

matplotlib.use("Agg")

X, Y = np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2)
M = abs(np.subtract.outer(np.arange(4.0), np.arange(3.0)))
A, B = np.full(4, 0.25), np.full(3, 1 / 3)
BAD_WEIGHTS = np.array([-1.0, 1, 1, 0])
NAN, OBJECT, RAGGED = np.full((4, 3), np.nan), object(), [[1.0, 2.0], [3.0]]
MASKED = np.ma.masked_greater(M, 2)
SELF = [abs(np.subtract.outer(np.arange(k), np.arange(k))) * 1.0 for k in (4, 3)]


def solve(**given):
    return monge.solve(**{"M": M, "reg": 0.1, **given})


def sample(**given):
    return monge.solve_sample(**{"X_a": X, "X_b": Y, "reg": 0.1, **given})


def batch(**given):
    return monge.solve_batch(**{"M": [M, M], "reg": 0.1, **given})


def sample_batch(**given):
    return monge.solve_sample_batch(**{"X_a": [X, X], "X_b": [Y, Y], "reg": 0.1, **given})


def sinkhorn(**given):
    return monge.sinkhorn(**{"a": A, "b": B, "M": M, "reg": 0.1, **given})


def sinkhorn2(**given):
    return monge.sinkhorn2(**{"a": A, "b": B, "M": M, "reg": 0.1, **given})


def unbalanced(**given):
    return monge.sinkhorn_unbalanced(**{"a": A, "b": B, "M": M, "reg": 0.1, "reg_m": 1.0, **given})


def emd(**given):
    return monge.emd(**{"a": A, "b": B, "M": M, **given})


def empirical(**given):
    return monge.empirical_sinkhorn(**{"X_s": X, "X_t": Y, "reg": 0.1, **given})


def empirical_divergence(**given):
    return monge.empirical_sinkhorn_divergence(**{"X_s": X, "X_t": Y, "reg": 0.1, **given})


def smooth(**given):
    return monge.smooth_ot_dual(**{"a": A, "b": B, "M": M, "reg": 0.1, **given})


def regularized(**given):
    return monge.solve_regularized(**{"M": M, **given})


def exact(**given):
    return monge.solve_exact(**{"M": M, **given})


def gromov(**given):
    return monge.solve_gromov(**{"Ca": SELF[0], "Cb": SELF[1], **given})


def regularized_sample(**given):
    return monge.solve_regularized_sample(**{"X_a": X, "X_b": Y, "quadratic": 0.5, **given})


def regularized_batch(**given):
    return monge.solve_regularized_batch(**{"M": [M, M], "quadratic": 0.5, **given})


def divergence(**given):
    return monge.sinkhorn_divergence(**{"X_a": X, "X_b": Y, "reg": 0.1, **given})


def divergence_of_costs(**given):
    return monge.sinkhorn_divergence_of_costs(
        **{"M_ab": M, "M_aa": SELF[0], "M_bb": SELF[1], "a": A, "b": B, "reg": 0.1, **given}
    )


def c_transform(**given):
    return monge.c_transform(**{"X_a": X, "X_b": Y, "g": np.zeros(3), **given})


def project(**given):
    return monge.project(**{"logits": np.zeros((2, 4, 4), np.float32), **given})


def fit(X=X, Xt=Y, y=None, **given):
    return monge.OTTransport(**{"reg": 0.1, **given}).fit(X, y, Xt=Xt)


LABELS = {"labels_x": [0, 1, 0, 1], "labels_y": [0, 1, 0], "label_cost": np.eye(2)}
UNEQUAL = "b: the total is 2; must equal the total of a, 1, to 5.0e-07 relative; divide each by its total"
FUNCTIONS = {
    sinkhorn: "sinkhorn",
    unbalanced: "sinkhorn_unbalanced",
    empirical: "empirical_sinkhorn",
    empirical_divergence: "empirical_sinkhorn_divergence",
    smooth: "smooth_ot_dual",
    divergence: "sinkhorn_divergence",
}
FLAGS = [
    (function, field)
    for function, name in FUNCTIONS.items()
    for field in ("log", "isLazy", "warn")
    if field in inspect.signature(getattr(monge, name)).parameters
]

OF_POT_ALONE = {
    solve: {"plan_init": M},
    sample: {
        **{"c": M, "plan_init": M, "rank": 5, "scaling": 0.5, "X_init": X, "random_state": 0},
        **{"debias": True, "n_projections": 5, "projections": X},
    },
    batch: {"inner_iter": 2, "inner_reg": 1e-2},
    sample_batch: {"inner_iter": 2, "inner_reg": 1e-2},
    smooth: {"max_nz": 2},
}

WRONG = [
    # What POT has and the library has not.
    *(
        (function, {name: value}, NotImplementedError, f"{name}: is given; ")
        for function, given in OF_POT_ALONE.items()
        for name, value in given.items()
    ),
    # The library's names, and the caller's.
    (solve, {"tol": -1}, ValueError, "tol: is -1; must be"),
    (solve, {"tol": "a"}, TypeError, "tol: is 'a'; must be float"),
    (solve, {"tol": np.ones((9, 9))}, TypeError, "tol: is of type ndarray; must be float"),
    (solve, {"tolerance": -1}, ValueError, "tolerance: is -1; must be"),
    (solve, {"tol": 1e-3, "tolerance": 1e-3}, ValueError, "tol: is given with tolerance"),
    (solve, {"max_iter": 0}, ValueError, "max_iter: is 0; must be >= 1"),
    (solve, {"max_iter": 1.5}, TypeError, "max_iter: is 1.5; must be int"),
    (solve, {"iterations": 0}, ValueError, "iterations: is 0"),
    (solve, {"max_iter": 2**40}, ValueError, "max_iter: is 1099511627776; must be >= 1 and at most 2147483647"),
    (solve, {"iterations": -(2**70)}, ValueError, "iterations: is -1180591620717411303424; must be >= 1"),
    (solve, {"M": csr_array(M)}, TypeError, "M: is sparse, of type csr_array; must be dense"),
    (solve, {"M": MASKED}, ValueError, "M: has masked entries; must have none"),
    (solve, {"a": np.ma.masked_less(A, 1)}, ValueError, "a: has masked entries; must have none"),
    (solve, {"stopThr": 1e-9}, TypeError, "stopThr: is no option; did you mean tol? Options are reg, eps_relative, "),
    (solve, {"reg": None, "epsilon": 0.1}, TypeError, "epsilon: is no option without reg; did you mean reg? Options"),
    (solve, {"reg": 1.0, "eps_relative": 0.05}, ValueError, "eps_relative: is given with reg; must be one of them"),
    (solve, {"reg": None, "eps": 1.0, "eps_relative": 0.05}, ValueError, "eps_relative: is given with eps; must be one"),
    (solve, {"reg": None, "eps": 0}, ValueError, "eps: is 0; must be > 0, or left out for 5 % of the mean cost"),
    (solve, {"rge": 1}, TypeError, "rge: is no option; did you mean reg? Options are reg, eps_relative, method, tol, "),
    (
        solve,
        {"reg": None, "rge": 1},
        TypeError,
        "rge: is no option without reg; did you mean reg? Options are tol, candidates, max_iter, unbalanced, mass; reg",
    ),
    (solve, {"unbal": 1}, TypeError, "unbal: is no option; did you mean unbalanced?"),
    (gromov, {"unbal": 1}, TypeError, "unbal: is no option; did you mean unbalanced?"),
    (solve, {"tolerence": 1}, TypeError, "tolerence: is no option; did you mean tolerance?"),
    (solve, {"xyz": 1}, TypeError, "xyz: is no option; options are reg, eps_relative, method, tol, criterion, max_iter, "),
    (sinkhorn, {"xyz": 1}, TypeError, "xyz: is no option; options are reg, eps_relative, method, stopThr, criterion, num"),
    (exact, {"maxiter": 1}, TypeError, "maxiter: is no option; did you mean rounds? Options are tol, candidates, rounds, "),
    (gromov, {"rge": 1}, TypeError, "rge: is no option; did you mean reg? Options are reg, alpha, "),
    # Values: the one that may be meant, where there are several.
    (solve, {"method": "newtn"}, ValueError, "method: is 'newtn'; did you mean 'newton'? Must be auto, sinkhorn, newton, "),
    (batch, {"method": "newtn"}, ValueError, "method: is 'newtn'; did you mean 'newton'? Must be auto, sinkhorn, newton, "),
    (fit, {"method": "newtn"}, ValueError, "method: is 'newtn'; did you mean 'newton'? Must be auto, sinkhorn, newton, "),
    (sample, {"metric": "euclid"}, ValueError, "metric: is 'euclid'; did you mean 'euclidean'? Must be sqeuclidean, "),
    (sample, {"metric": "Cosine"}, ValueError, "metric: is 'Cosine'; did you mean 'cosine'? Must be sqeuclidean, "),
    (divergence, {"metric": "euclid"}, ValueError, "metric: is 'euclid'; did you mean 'euclidean'? Must be sqeuclidean, "),
    (solve, {"reg_type": "entrpy"}, NotImplementedError, "reg_type: is 'entrpy'; did you mean 'entropy'? Must be 'KL' or"),
    (solve, {"grad": "detch"}, ValueError, "grad: is 'detch'; did you mean 'detach'? Must be autodiff, envelope, "),
    (solve, {"precision": "flot32"}, ValueError, "precision: is 'flot32'; did you mean 'float32'? Must be auto, float32"),
    (solve, {"device": "gpu"}, ValueError, "device: is 'gpu'; did you mean 'cuda'? Must be 'cpu', 'cuda' or 'cuda:' and"),
    (regularized, {"criterion": "gp"}, ValueError, "criterion: is 'gp'; did you mean 'gap'? Must be gap or residual"),
    (project, {"preset": "deepsek"}, ValueError, "preset: is 'deepsek'; did you mean 'deepseek'? Must be mhc_paper, "),
    (monge.OTPlanSampler, {"method": "exat"}, ValueError, "method: is 'exat'; did you mean 'exact'? Must be exact, "),
    (monge.OTPlanSampler, {"metod": "exact"}, TypeError, "metod: is no argument of OTPlanSampler(); did you mean method?"),
    (gromov, {"loss": "L1"}, NotImplementedError, "loss: is 'L1'; must be 'L2'"),  # There is nothing to choose.
    (sample, {"label_x": [0]}, TypeError, "label_x: is no option; did you mean labels_x? Options are reg, "),
    (c_transform, {"scal": 2}, TypeError, "scal: is no option; did you mean scale? Options are labels_x, labels_y, "),
    (
        monge.linear_sum_assignment,
        {"cost_matrix": M, "maximise": True},
        TypeError,
        "maximise: is no argument of linear_sum_assignment(); did you mean maximize?",
    ),
    (solve, {"M": NAN}, ValueError, "M: row 0, column 0 is nan"),
    (solve, {"M": np.zeros((0, 3))}, ValueError, "M: is 0 x 3; must have"),
    (solve, {"M": np.zeros(3)}, ValueError, "M: has shape (3,); must be (n, m)"),
    (solve, {"M": 1.0}, ValueError, "M: has shape (); must be (n, m)"),
    (solve, {"M": "abc"}, TypeError, "M: is 'abc'; must be an array"),
    (solve, {"M": None}, TypeError, "M: is None; must be an array"),
    (solve, {"M": OBJECT}, TypeError, "M: is <object"),
    (solve, {"M": RAGGED}, ValueError, "M: is no array of numbers"),
    (solve, {"M": M.astype(complex)}, TypeError, "M: is of dtype complex128"),
    (solve, {"M": 0 * M, "reg": "auto"}, ValueError, "reg: 'auto', eps_relative: is 0.05, of a mean cost of 0"),
    (solve, {"reg": "a"}, TypeError, "reg: is 'a'; must be a number or 'auto'"),
    (solve, {"reg": [0.1, 0.2]}, TypeError, "reg: is [0.1, 0.2]; must be a number"),
    (solve, {"reg": np.ones(1)}, TypeError, "reg: is an array of shape (1,); must be a number"),
    (solve, {"reg": np.nan}, ValueError, "reg: is nan"),
    (solve, {"reg": np.inf}, ValueError, "reg: is inf"),
    (solve, {"reg": -1}, ValueError, "reg: is -1"),
    (solve, {"reg": 10**400}, TypeError, "reg: is of type int; must be a number"),
    (solve, {"reg": None, "eps": -1.0}, ValueError, "eps: is -1"),
    (solve, {"reg": 0.1, "eps": 0.1}, ValueError, "reg: is given with eps"),
    (solve, {"unbalanced": -1}, ValueError, "unbalanced: is -1; must be"),
    (solve, {"unbalanced": "x"}, TypeError, "unbalanced: is 'x'; must be a number"),
    (solve, {"unbalanced": (1, "x")}, TypeError, "unbalanced: is 'x'; must be a number"),
    (solve, {"unbalanced": (1, 2, 3)}, ValueError, "unbalanced: has 3 numbers"),
    (solve, {"unbalanced": 1.0, "reg_type": "entropy", "reg": "auto"}, NotImplementedError, "reg: is 'auto'; must"),
    (solve, {"c": M, "reg": "auto"}, NotImplementedError, "reg: is 'auto'; must be"),
    (solve, {"c": M, "reg_type": "L2"}, NotImplementedError, "c: is given; "),
    (solve, {"c": M.T}, ValueError, "c: has shape (3, 4); must be (4, 3), the shape of M"),
    (solve, {"c": -1 - M}, ValueError, "c: has an entry that is negative or not finite"),
    (solve, {"c": NAN[:3]}, ValueError, "c: "),
    (solve, {"c": 2 + M, "reg_type": "entropy"}, ValueError, "c: is given with reg_type 'entropy'"),
    # Before these were checked, Python computed with them.
    (solve, {"c": M, "a": np.full(5, 0.2)}, ValueError, "a: has 5 entries; must have 4, one for each row of M"),
    (solve, {"c": M, "b": np.ones((3, 1))}, ValueError, "b: has shape (3, 1); must be a vector"),
    (unbalanced, {"reg": 1.0, "reg_m": -1.0, "reg_type": "entropy"}, ValueError, "reg_m: is -1; must be"),
    (unbalanced, {"a": None, "M": np.zeros((0, 3))}, ValueError, "M: is 0 x 3; must have at least one row and column"),
    (solve, {"reg": 1.0, "unbalanced": -1.0, "reg_type": "entropy"}, ValueError, "unbalanced: is -1; must be"),
    (emd, {"b": 0 * B, "check_marginals": False}, ValueError, "b: the total is 0; must be > 0"),
    (divergence, {"X_a": np.zeros((0, 2))}, ValueError, "X_a: is 0 x 2; must have at least one point and dimension"),
    (solve, {"reg_type": (len, len)}, NotImplementedError, "reg_type: is a function"),
    (solve, {"grad": "none"}, ValueError, "grad: is 'none'; must be autodiff, envelope, last_step, detach"),
    (batch, {"grad": M}, ValueError, "grad: is an array of shape (4, 3)"),
    (sample, {"method": "gaussian", "metric": "x"}, NotImplementedError, "method: is 'gaussian', POT's for transport"),
    (sample, {"scaler": 3}, ValueError, "scaler: is 3; must be a function"),
    (sample_batch, {"metric": "kl", "X_a": [-1 - abs(X), X]}, ValueError, "problem 0: X_a: has a negative coordinate"),
    (solve, {"unbalanced": 1.0, "method": "splr"}, NotImplementedError, "unbalanced: is 1; must be inf with"),
    (solve, {"penalty_a": -1.0}, ValueError, "penalty_a: is -1"),
    (solve, {"unbalanced": 1.0, "unbalanced_type": None}, TypeError, "unbalanced_type: is None"),
    (solve, {"reg_type": None}, TypeError, "reg_type: is None"),
    (solve, {"reg_type": len}, NotImplementedError, "reg_type: is a function"),
    (solve, {"reg_type": "group"}, NotImplementedError, "reg_type: is 'group'"),
    (solve, {"method": 3}, TypeError, "method: is 3; must be"),
    (solve, {"method": np.ones(3)}, TypeError, "method: is array([1., 1., 1.]); must be"),
    (solve, {"method": "lp"}, ValueError, "method: is 'lp'; must be"),
    (solve, {"potentials_init": np.ones(3)}, TypeError, "potentials_init: is an array of shape (3,); must be a pair"),
    (solve, {"potentials_init": 3}, TypeError, "potentials_init: is 3; must be a pair"),
    (solve, {"potentials_init": (A, A)}, ValueError, "potentials_init: g: has 4 entries; must have 3"),
    (solve, {"potentials_init": (A, None)}, ValueError, "potentials_init: g: is missing"),
    (solve, {"potentials_init": (A, "x")}, TypeError, "potentials_init: g: is 'x'"),
    (solve, {"potentials_init": (A, NAN[0])}, ValueError, "potentials_init: g: entry 0 is nan"),
    (solve, {"a": BAD_WEIGHTS}, ValueError, "a: entry 0 is -1"),
    (solve, {"a": []}, ValueError, "a: has shape (0,); must not be empty"),
    (solve, {"a": 3}, ValueError, "a: has shape ()"),
    (solve, {"a": np.ones(3)}, ValueError, "a: has 3 entries; must have 4, one for each row of M"),
    (sample, {"a": np.ones(3)}, ValueError, "a: has 3 entries; must have 4, one for each row of X_a"),
    (sample, {"b": np.ones(4)}, ValueError, "b: has 4 entries; must have 3, one for each row of X_b"),
    (empirical, {"b": np.ones(4)}, ValueError, "b: has 4 entries; must have 3, one for each row of X_t"),
    (regularized, {"a": B}, ValueError, "a: has 3 entries; must have 4, one for each row of M"),
    (regularized_sample, {"b": A}, ValueError, "b: has 4 entries; must have 3, one for each row of X_b"),
    (divergence_of_costs, {"b": A}, ValueError, "b: has 4 entries; must have 3, one for each column of M_ab"),
    (c_transform, {"g": A}, ValueError, "g: has 4 entries; must have 3"),
    (fit, {"method": "group_lasso", "y": [0, 1]}, ValueError, "y: has 2 entries; must have 4, one for each row of X"),
    (solve, {"a": A, "b": 2 * B}, ValueError, UNEQUAL + "; unequal totals need unbalanced"),
    (sample, {"a": A, "b": 2 * B}, ValueError, UNEQUAL + "; unequal totals need unbalanced"),
    (batch, {"a": A, "b": 2 * B}, ValueError, "problem 0: " + UNEQUAL + "; unequal totals need unbalanced"),
    (divergence, {"a": A, "b": 2 * B}, ValueError, UNEQUAL + "; unequal totals need unbalanced"),
    (sinkhorn, {"b": 2 * B, "stopThr": 1e-6}, ValueError, UNEQUAL + "; unequal totals need sinkhorn_unbalanced()"),
    (empirical, {"a": A, "b": 2 * B, "stopThr": 1e-6}, ValueError, UNEQUAL + "; unequal totals need sinkhorn_unb"),
    (unbalanced, {"b": 2 * B, "reg_m": np.inf}, ValueError, UNEQUAL + "; unequal totals need a finite reg_m"),
    (divergence, {"unbalanced": (0.5, 0.3)}, ValueError, "unbalanced: is 0.3; must be 0.5 on both sides"),
    (divergence_of_costs, {"unbalanced": (0.5, 0.3)}, ValueError, "unbalanced: is 0.3; must be 0.5 on both sides"),
    (divergence, {"penalty_a": 0.5, "penalty_b": 0.3}, ValueError, "penalty_b: is 0.3; must be 0.5 on both sides"),
    (solve, {"a": "abcd"}, TypeError, "a: is 'abcd'"),
    (solve, {"n_threads": -1}, ValueError, "n_threads: is -1"),
    (solve, {"n_threads": "2"}, TypeError, "n_threads: is '2'; must be a whole number"),
    (solve, {"progress": 3}, TypeError, "progress: is 3; must be True, False or a function"),
    (solve, {"verbose": np.ones(3)}, TypeError, "verbose: is an array of shape (3,); must be True or False"),
    (solve, {"device": "gpu"}, ValueError, "device: is 'gpu'"),
    (solve, {"device": np.zeros((99, 99))}, ValueError, "device: is an array of shape (99, 99); must be"),
    (solve, {"unbalanced_type": "x"}, NotImplementedError, "unbalanced_type: is 'x'; must be 'KL'"),
    (solve, {"unbalanced_type": "TV", "penalty_a": 1.0}, NotImplementedError, "unbalanced_type: is 'TV'"),
    (solve, {"unbalanced_type": "x", "reg_type": "L2"}, NotImplementedError, "unbalanced_type: is 'x'"),
    (solve, {"precision": "half"}, ValueError, "precision: is 'half'"),
    # reg_type "L2".
    (solve, {"reg_type": "L2", "reg": "a"}, TypeError, "reg: is 'a'"),
    (solve, {"reg_type": "L2", "reg": np.inf}, ValueError, "reg: is inf"),
    (solve, {"reg_type": "L2", "tol": -1}, ValueError, "tol: is -1"),
    (solve, {"reg_type": "L2", "max_iter": "a"}, TypeError, "max_iter: is 'a'"),
    (solve, {"reg_type": "L2", "a": A, "b": 2 * B}, ValueError, "b: the total is 2; must equal the total of a, 1"),
    (solve, {"reg_type": "L2", "potentials_init": (A, A)}, ValueError, "potentials_init: g: has 4 entries"),
    # Points.
    (sample, {"X_a": NAN}, ValueError, "X_b: has 2 columns; must have 3, the dimension of X_a"),
    (sample, {"X_a": X[:, 0]}, ValueError, "X_a: has shape (4,); must be (n, d)"),
    (sample, {"X_b": NAN[:, :2]}, ValueError, "X_b: row 0, column 0 is nan"),
    (sample, {"X_b": np.zeros((0, 2))}, ValueError, "X_b: is 0 x 2"),
    (sample, {"metric": None}, ValueError, "metric: is None; must be"),
    (sample, {"metric": [1]}, ValueError, "metric: is [1]; must be"),
    (sample, {"scale": "a"}, TypeError, "scale: is 'a'; must be a number"),
    (sample, {"scale": -1}, ValueError, "scale: is -1"),
    (sample, {"scale": -1, "metric": "euclidean", "reg": None}, ValueError, "scale: is -1; must be finite and > 0"),
    (sample, {"norm_p": 3}, ValueError, "norm_p: is 3; is for the metric p-norm"),
    (sample, {"metric": "p-norm", "norm_p": 0.5}, ValueError, "norm_p: is 0.5; must be"),
    (sample, {"metric": "p-norm", "norm_p": "a"}, TypeError, "norm_p: is 'a'; must be a number"),
    (sample, {"labels_x": [0, 1, 0, 1]}, ValueError, "labels_y: is missing"),
    (sample, {"label_cost": np.eye(2)}, ValueError, "labels_x: is missing"),
    (sample, {"label_weight": 2.0}, ValueError, "label_weight: is 2.0; must be 1"),
    # Batches.
    (batch, {"M": 3}, TypeError, "M: is 3; must be costs (B, n, m)"),
    (batch, {"M": []}, ValueError, "M: has no problems"),
    (batch, {"M": [M, "x"]}, TypeError, "problem 1: M: is 'x'"),
    (batch, {"M": [M, NAN]}, ValueError, "problem 1: M: row 0, column 0 is nan"),
    (batch, {"M": [M, M[0]]}, ValueError, "problem 1: M: has shape (3,)"),
    (batch, {"a": [A, BAD_WEIGHTS]}, ValueError, "problem 1: a: entry 0 is -1"),
    (batch, {"a": [A, NAN]}, ValueError, "problem 1: a: has shape (4, 3)"),
    (batch, {"a": np.ones((2, 2, 2))}, ValueError, "a: has shape (2, 2, 2); must have 2 dimensions, or 1"),
    (batch, {"a": [A]}, ValueError, "a: has 1 entries; must have 2"),
    (batch, {"device": "gpu"}, ValueError, "device: is 'gpu'"),
    (batch, {"method": np.ones(3)}, TypeError, "method: is array"),
    (batch, {"potentials_init": 3}, TypeError, "potentials_init: is 3; must be a list of pairs, or the pair"),
    (batch, {"penalty_a": 1.0, "reg": "auto"}, NotImplementedError, "reg: is 'auto'; must be a number with penalties"),
    (batch, {"potentials_init": (M, M)}, ValueError, "potentials_init: f: has 4 entries; must have 2, one for each"),
    (batch, {"potentials_init": ([A, A], [B])}, ValueError, "potentials_init: g: has 1 entries; must have 2"),
    (batch, {"potentials_init": (M[:2], M[:2])}, ValueError, "problem 0: potentials_init: f: has 3 entries; must"),
    (batch, {"potentials_init": [(A, B)]}, ValueError, "potentials_init: has 1 entries; must have 2"),
    (batch, {"potentials_init": [(A, B), 3]}, TypeError, "problem 1: potentials_init: is 3"),
    (batch, {"potentials_init": [(A, B), (A, A)]}, ValueError, "problem 1: potentials_init: g: has 4 entries"),
    (
        batch,
        {"reg_type": "L2", "a": A, "b": [B, 2 * B]},
        ValueError,
        "problem 1: b: the total is 2; must equal the total of a",
    ),
    (sample_batch, {"X_a": [X]}, ValueError, "X_b: has 2 entries; must have 1"),
    (sample_batch, {"X_a": [], "X_b": []}, ValueError, "X_a: has no problems"),
    (sample_batch, {"X_b": [Y, NAN]}, ValueError, "problem 1: X_b: has 3 columns; must have 2, the dimension of X_a"),
    (sample_batch, {"metric": np.ones(3)}, ValueError, "metric: is an array of shape (3,)"),
    (sample_batch, {"metric": "minkowski", "p": 0.5}, ValueError, "problem 0: p: is 0.5; must be"),
    (sample_batch, {"p": "x"}, TypeError, "p: is 'x'; must be a number"),
    (sample_batch, {"p": 3}, ValueError, "p: is 3; is for the metric p-norm"),
    (sample_batch, {"labels_x": [0, 1, 0, 1]}, ValueError, "labels_y: is missing; labels_x, labels_y and"),
    (sample_batch, {"label_weight": 2.0}, ValueError, "label_weight: is 2.0; must be 1 without labels"),
    (sample_batch, {**LABELS, "labels_x": [[0, 1, 0, 1]]}, ValueError, "labels_x: has 1 entries; must have 2"),
    (sample_batch, {**LABELS, "labels_y": [[0, 1, 0], [0, 1, 2]]}, ValueError, "problem 1: labels_y: point 2 has label 2"),
    (sample_batch, {**LABELS, "label_cost": [np.eye(2), np.eye(3)[0]]}, ValueError, "problem 1: label_cost: "),
    (sample_batch, {**LABELS, "label_weight": "x"}, TypeError, "label_weight: is 'x'; must be a number"),
    # POT's functions of arrays.
    (sinkhorn, {"stopThr": -1}, ValueError, "stopThr: is -1"),
    (sinkhorn, {"stopThr": 1e-3, "tolerance": 1e-3}, ValueError, "stopThr: is given with tolerance"),
    (sinkhorn, {"numItermax": 0}, ValueError, "numItermax: is 0"),
    (sinkhorn, {"M": NAN}, ValueError, "M: row 0"),
    (sinkhorn, {"a": np.array(1.0)}, ValueError, "a: has shape ()"),
    (sinkhorn, {"method": np.ones(3)}, TypeError, "method: is array"),
    (sinkhorn, {"warmstart": 3}, TypeError, "warmstart: is 3; must be a pair"),
    (sinkhorn, {"warmstart": (A, A)}, ValueError, "warmstart: has shape (4,); must be (3,)"),
    (sinkhorn, {"reg": None}, ValueError, "reg: is None; must be > 0"),
    (sinkhorn, {"warmstart": (A, B), "reg": "auto"}, ValueError, "warmstart: is given without reg"),
    (sinkhorn, {"warmstart": (A, NAN[0])}, ValueError, "warmstart: entry 0 is nan"),
    (sinkhorn, {"b": np.stack([B, 2 * B], 1)}, ValueError, "problem 1: b: the total is 2"),
    (sinkhorn, {"warn": "x"}, TypeError, "warn: is 'x'; must be True or False"),
    (sinkhorn, {"tol": 1e-3}, TypeError, "tol: is no option; must be given as stopThr"),
    (sinkhorn, {"max_iter": 9}, TypeError, "max_iter: is no option; must be given as numItermax"),
    (empirical, {"max_iter": 9}, TypeError, "max_iter: is no option; must be given as numIterMax"),
    (empirical_divergence, {"tol": 1e-3}, TypeError, "tol: is no option; must be given as stopThr"),
    (smooth, {"tol": 1e-3}, TypeError, "tol: is no option; must be given as stopThr"),
    (unbalanced, {"reg_m": -1}, ValueError, "reg_m: is -1"),
    (unbalanced, {"reg_m": "x"}, TypeError, "reg_m: is 'x'"),
    (unbalanced, {"reg_type": None}, TypeError, "reg_type: is None"),
    (unbalanced, {"reg_type": "l2"}, NotImplementedError, "reg_type: is 'l2'; must be 'kl' or 'entropy'"),
    (unbalanced, {"b": np.stack([B, B], 1), "c": M}, NotImplementedError, "c: is given with several b"),
    (unbalanced, {"b": np.stack([B, B], 1), "warmstart": (A, B)}, NotImplementedError, "warmstart: is given with"),
    (sinkhorn2, {"method": "greenkhorn"}, ValueError, "method: is 'greenkhorn', which is one of sinkhorn()"),
    (empirical_divergence, {"warmstart": (A, A)}, ValueError, "warmstart: has shape (4,); must be (3,)"),
    (empirical, {"X_s": X[0]}, ValueError, "X_s: has shape (2,)"),
    (empirical, {"X_t": NAN}, ValueError, "X_t: has 3 columns; must have 2, the dimension of X_s"),
    (empirical, {"numIterMax": 0}, ValueError, "numIterMax: is 0"),
    (empirical_divergence, {"X_t": NAN}, ValueError, "X_t: has 3 columns; must have 2, the dimension of X_s"),
    (empirical_divergence, {"stopThr": -1}, ValueError, "stopThr: is -1"),
    (smooth, {"reg": np.inf}, ValueError, "reg: is inf"),
    (smooth, {"stopThr": -1}, ValueError, "stopThr: is -1"),
    (smooth, {"a": A, "b": 2 * B}, ValueError, "b: the total is 2; must equal the total of a, 1"),
    (smooth, {"reg_type": None}, TypeError, "reg_type: is None"),
    # Regularised solves.
    (regularized, {"a": A, "b": 2 * B}, ValueError, "b: the total is 2; must equal the total of a, 1"),
    (regularized, {"quadratic": -1}, ValueError, "quadratic: is -1"),
    (regularized, {"quadratic": "a"}, TypeError, "quadratic: is 'a'; must be a number"),
    (regularized, {"tol": -1}, ValueError, "tol: is -1"),
    (regularized, {"tolerance": -1.0}, ValueError, "tolerance: is -1"),
    (regularized, {"max_iter": 0}, ValueError, "max_iter: is 0"),
    (regularized, {"tol": 1e-3, "tolerance": 1e-3}, ValueError, "tol: is given with tolerance"),
    (regularized, {"max_iter": 9, "iterations": 9}, ValueError, "max_iter: is given with iterations"),
    (regularized, {"groups": [0, 0, 1, 1]}, ValueError, "groups: is given without group_lasso"),
    (regularized, {"group_weights": [1.0, 2.0]}, ValueError, "group_weights: is given without group_lasso"),
    (regularized, {"group_lasso": 0.1}, ValueError, "groups: is missing; group_lasso"),
    (regularized, {"group_lasso": 0.1, "groups": [0.5] * 4}, TypeError, "groups: is of dtype float64; must be whole"),
    (regularized, {"l1_weights": M}, ValueError, "l1_weights: is given without l1"),
    (regularized, {"l1": 0.1}, ValueError, "l1_weights: is missing; l1"),
    (regularized, {"hypentropy_width": 2.0}, ValueError, "hypentropy_width: is given without hypentropy"),
    (regularized, {"mask": np.zeros((0, 0))}, ValueError, "mask: has shape (0, 0); must not be empty"),
    (regularized, {"potentials_init": 3}, TypeError, "potentials_init: is 3; must be a pair"),
    (regularized, {"potentials_init": (A, A)}, ValueError, "potentials_init: v: has 4 entries"),
    (regularized_sample, {"X_b": NAN}, ValueError, "X_b: has 3 columns; must have 2, the dimension of X_a"),
    (regularized_sample, {"tol": -1}, ValueError, "tol: is -1"),
    (
        regularized_batch,
        {"a": A, "b": [B, 2 * B]},
        ValueError,
        "problem 1: b: the total is 2; must equal the total of a",
    ),
    (regularized_batch, {"M": [M, M[0]]}, ValueError, "problem 1: M: has shape (3,)"),
    (regularized_batch, {"mask": [M, M[0]]}, ValueError, "problem 1: mask: has shape (3,)"),
    (regularized_batch, {"tol": 1e-3, "tolerance": 1e-3}, ValueError, "tol: is given with tolerance"),
    # Divergences and c-transforms.
    (divergence, {"X_b": NAN}, ValueError, "X_b: has 3 columns; must have 2, the dimension of X_a"),
    (divergence, {"tol": -1}, ValueError, "tol: is -1"),
    (divergence, {"warn": None}, TypeError, "warn: is None"),
    (divergence_of_costs, {"tol": -1}, ValueError, "tol: is -1"),
    (divergence_of_costs, {"max_iter": 0}, ValueError, "max_iter: is 0"),
    (divergence_of_costs, {"n_threads": -1}, ValueError, "n_threads: is -1"),
    (divergence_of_costs, {"M_ab": NAN}, ValueError, "M_ab: row 0, column 0 is nan"),
    (divergence_of_costs, {"M_aa": M}, ValueError, "M_aa: is 4 x 3; must be 4 x 4"),
    (divergence_of_costs, {"M_bb": np.full((3, 3), np.nan)}, ValueError, "M_bb: row 0, column 0 is nan"),
    (divergence_of_costs, {"M_bb": B}, ValueError, "M_bb: has shape (3,)"),
    (divergence_of_costs, {"a": BAD_WEIGHTS}, ValueError, "a: entry 0 is -1"),
    (c_transform, {"X_a": X[0]}, ValueError, "X_a: has shape (2,)"),
    (c_transform, {"labels_x": [0, 1, 0, 1]}, ValueError, "labels_y: is missing"),
    (c_transform, {**LABELS, "labels_x": [0, 1, 0]}, ValueError, "labels_x: has 3 entries; must have 4"),
    (c_transform, {"label_weight": 2.0}, ValueError, "label_weight: is 2.0; must be 1 without labels"),
    # Projections.
    (project, {"preset": 3}, TypeError, "preset: is 3; must be a name"),
    (project, {"preset": "mine"}, ValueError, "preset: is 'mine'"),
    (project, {"iterations": [1]}, TypeError, "iterations: is [1]; must be int"),
    (project, {"logits": None}, TypeError, "logits: is None; must be an array"),
    (project, {"logits": np.zeros((2, 2), complex)}, TypeError, "logits: is of dtype complex128"),
    (project, {"logits": np.zeros((0, 4), np.float32)}, ValueError, "logits: is 0 x 4; must be"),
    (project, {"row_marginal": []}, ValueError, "row_marginal: has shape (0,)"),
    (monge.projection_marginals, {"rows": 0, "columns": 2}, ValueError, "rows: is 0"),
    (monge.projection_marginals, {"rows": "a", "columns": 2}, TypeError, "rows: is 'a'; must be a whole number"),
    # scikit-learn.
    (fit, {"method": np.ones(3)}, TypeError, "method: is array"),
    (
        fit,
        {"method": "lp"},
        ValueError,
        "method: is 'lp'; must be auto, sinkhorn, newton, splr, multiscale, group_lasso, quadratic",
    ),
    (lambda y: fit().transform_labels(y), {"y": [0, 1]}, ValueError, "y: has shape (2,); must be (4,)"),
    (lambda y: fit().transform_labels(y), {"y": X}, ValueError, "y: has shape (4, 2); must be (4,)"),
    (fit, {"reg": "a"}, TypeError, "reg: is 'a'"),
    (fit, {"method": "quadratic", "reg": -1}, ValueError, "reg: is -1"),
    (fit, {"method": "quadratic", "tol": -1}, ValueError, "tol: is -1"),
    (fit, {"method": "group_lasso", "reg": 0, "y": [0, 1]}, ValueError, "y: has 2 entries; must have 4"),
    (fit, {"method": "group_lasso", "y": RAGGED}, ValueError, "y: is no array"),
    (fit, {"metric": None}, ValueError, "metric: is None"),
]

OF_RESULTS = [
    (lambda r: r.apply(A), "v: has shape (4,); must be (3,) or (3, p)"),
    (lambda r: r.apply(B, transpose=True), "v: has shape (3,); must be (4,) or (4, p)"),
    (lambda r: r.apply(1.0), "v: has shape ()"),
    (lambda r: r.push(B), "mass: has shape (3,); must be (4,) or (4, p)"),
    (lambda r: r.pull(A), "mass: has shape (4,); must be (3,) or (3, p)"),
    (lambda r: r.average(A), "values: has shape (4,)"),
    (lambda r: r.average(B, transpose=True), "values: has shape (3,)"),
    (lambda r: r.transform(X[0]), "points: has shape (2,)"),
    (lambda r: r.potential(np.float64(1)), "points: has shape ()"),
    (lambda r: r.topk(0), "k: is 0; must be from 1 to 3"),
    (lambda r: r.topk(5, axis=0), "k: is 5; must be from 1 to 4"),
    (lambda r: r.topk(1.5), "k: is 1.5; must be a whole number"),
    (lambda r: r.topk(1, axis=2), "axis: is 2; must be from 0 to 1"),
    (lambda r: r.sample(-1), "k: is -1; must be >= 0"),
    (lambda r: r.sample("a"), "k: is 'a'; must be a whole number"),
    (lambda r: r.sample(1, seed=-1), "seed: is -1; must be"),
    (lambda r: monge.plot.plan(r, top=0), "top: is 0; must be from 1 to 3"),
    (lambda r: monge.plot.displacement(r, most=-1), "most: is -1; must be >= 0"),
]

OF_ENTROPIC_RESULTS = [
    (lambda r: r.sparse("a"), "threshold: is 'a'; must be a number"),
    (lambda r: r.gradients(-1), "error_iterations: is -1"),
    (lambda r: r.hessian_product(x=Y), "x: is 3 x 2; must be 4 x 2"),
    (lambda r: r.hessian_product(x=X, damping="a"), "damping: is 'a'; must be a number"),
    (lambda r: r.hessian_product(x=X, iterations=0), "iterations: is 0"),
    (lambda r: r.inverse_hessian_product(Y), "v: is 3 x 2; must be 4 x 2"),
    (lambda r: r.inverse_hessian_product(X, shift="a"), "shift: is 'a'; must be a number"),
    (lambda r: r.apply_hadamard(X, Y[:2], B), "right: is 2 x 2; must be 3 x "),
    (lambda r: r.apply_hadamard(X[0], Y, B), "left: has shape (2,)"),
    (lambda r: r.apply_hadamard(X, Y, A), "v: has shape (4,)"),
    (lambda r: r.apply_gram(B, B), "w: has 3 entries; must have 4"),
    (lambda r: r.apply_gram(A, A), "v: has 4 entries; must have 3"),
    (lambda r: r.apply_gram(B, B, transpose=True), "v: has 3 entries; must have 4"),
]


@pytest.mark.parametrize(("function", "given", "error", "first_words"), WRONG)
def test_wrong_arguments_are_named(function, given, error, first_words):
    assert_named(function, given, error, first_words)


REG = "the regularisation is given by its name: reg="
AT_THE_PLACE_OF_A = [
    (monge.solve, (M, 0.1), "a: has shape (); must be a vector; " + REG + "0.1"),
    (monge.solve_sample, (X, Y, 0.1), "a: has shape (); must be a vector; " + REG + "0.1"),
    (monge.solve, (M, "auto"), "a: is 'auto'; must be an array of numbers; " + REG + "'auto'"),
    (monge.solve, (X, Y), "a: has shape (3, 2); must be a vector; points are arguments of solve_sample(x, y)"),
    (monge.solve_exact, (X, Y), "a: has shape (3, 2); must be a vector; points are arguments of solve_exact_sample(x, y)"),
    (monge.solve_exact, (M, 0.1), "a: has shape (); must be a vector"),
    (monge.solve_sample, (X, Y, M), "a: has shape (4, 3); must be a vector"),
    (monge.emd, (X, Y, M), "a: has shape (4, 2); must be a vector"),
]


@pytest.mark.parametrize(("function", "given", "words"), AT_THE_PLACE_OF_A)
def test_what_is_at_the_place_of_weights_is_told_its_own(function, given, words):
    with pytest.raises((ValueError, TypeError)) as raised:
        function(*given)
    assert str(raised.value) == words


@pytest.mark.parametrize("labels", [["a", "b", "a", "b"], [0.0, 1.0, 0.0, 1.0]])
def test_classes_that_are_not_numbers_are_told_how_to_become_them(labels):
    given = {**LABELS, "labels_x": labels, "labels_y": labels[:3]}
    how = "np.unique(np.concatenate([labels_x, labels_y]), return_inverse=True)[1]"
    with pytest.raises(TypeError, match=f"^labels_x: is of dtype .*; must be whole numbers; {re.escape(how)} numbers"):
        sample(**given)
    numbers = eval(how, {"np": np, **given})
    assert sample(**given | {"labels_x": numbers[:4], "labels_y": numbers[4:]}).value == sample(**LABELS).value


@pytest.mark.parametrize(("function", "field"), FLAGS)
def test_flags_are_read_before_the_solve(function, field):
    def fail(*given):
        raise AssertionError("was solved")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("solve", "solve_batch", "sinkhorn_divergences", "solve_regularized"):
            patch.setattr(monge._core, name, fail)
        for wrong in (np.ones(3), "x", None):
            with pytest.raises(TypeError, match=f"^{field}: is .*; must be True or False"):
                function(**{field: wrong})
    assert function(**{field: np.True_}) is not None


HALF = A.astype(np.float16), (1.01 * B).astype(np.float16)


@pytest.mark.parametrize("function", [solve, sample, batch, sinkhorn, empirical_divergence, regularized])
def test_totals_of_half_precision_are_explained(function):
    a, b = HALF
    with pytest.raises(ValueError, match="; weights in float16 are rounded: divide them by their totals in float32$"):
        function(a=a, b=b)
    with pytest.raises(ValueError, match="the total of a") as raised:
        function(a=a.astype(np.float32), b=b.astype(np.float32))
    assert "rounded" not in str(raised.value)


def test_a_mask_that_hides_nothing_is_none():
    open_mask = np.ma.array(M, mask=np.zeros_like(M, bool))
    np.testing.assert_array_equal(solve(M=open_mask).plan, solve().plan)


def test_warnings_of_columns_are_made_where_they_are_asked_for():
    given = {"b": np.stack([B, B], 1), "numItermax": 1, "reg": 0.01}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sinkhorn(warn=False, **given)
    with pytest.warns(monge.ConvergenceWarning):
        sinkhorn(warn=True, **given)


def test_sparse_plans_say_what_they_need(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    for result in (solve(), regularized(quadratic=0.5)):
        with pytest.raises(ModuleNotFoundError, match=r"^sparse plans: needs scipy, .*'monge\[sparse\]'$"):
            result.sparse_plan


@pytest.mark.parametrize(("ask", "first_words"), OF_RESULTS)
@pytest.mark.parametrize("solve", [sample, regularized_sample])
def test_wrong_questions_to_a_result_are_named(solve, ask, first_words):
    with pytest.raises((ValueError, TypeError), match="^" + re.escape(first_words)):
        ask(solve())


@pytest.mark.parametrize(("ask", "first_words"), OF_ENTROPIC_RESULTS)
def test_wrong_questions_to_an_entropic_result_are_named(ask, first_words):
    with pytest.raises((ValueError, TypeError), match="^" + re.escape(first_words)):
        ask(sample())


@pytest.mark.parametrize("draw", [monge.plot.convergence, monge.plot.plan, monge.plot.displacement])
def test_pictures_are_of_one_problem(draw):
    classes = "OTResult or RegularizedResult" + ("" if draw is monge.plot.convergence else " or ExactResult")
    with pytest.raises(TypeError, match=f"^result: is of the class BatchResult; must be {classes}$"):
        draw(batch())


def test_an_error_of_the_callers_own_function_is_left_alone():
    def fail(state):
        raise KeyError("tolerance")

    with pytest.raises(KeyError, match="tolerance"):
        solve(progress=fail)
