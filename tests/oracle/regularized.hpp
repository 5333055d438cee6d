// Regularised plans from their definitions: dense, long double, minima and roots by bisection. Slow and hard to get
// wrong.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "oracle/dense.hpp"
#include "oracle/problem.hpp"
#include "seam/backend.hpp"
#include "seam/regularized_operator.hpp"

namespace monge::oracle {

/// What a test problem is made of.
struct RegularizedRecipe {
  std::int64_t n, m;
  std::string name = "";
  double quadratic = 0;
  double group_lasso = 0;
  std::int64_t groups = 3;         // Their rows are anywhere, and their sizes unequal.
  bool has_group_weights = false;  // The weight of the first is 0.
  bool has_pair_groups = false;    // Their pairs are anywhere, and a fifth of all pairs is in none.
  double l1 = 0;
  double hypentropy = 0, hypentropy_width = 0.01;
  bool has_points = false;  // Squared distances of the plane times a factor, for which the offset is 0.
  bool has_mask = false;
  bool has_infinite_costs = false;
  bool has_zero_shares = false;  // With an infinite row and an infinite column among them.
  double offset = 0, range = 1,
         mass = 1;  // Weights above are multiplied by these, so X / mass does not depend on them.
  DataType storage = DataType::float64;
  bool transposed = false;
  std::uint64_t seed = 1;
};

/// A test problem with all it is made of; other objects refer to it, so it stays where it is.
struct RegularizedData {
  explicit RegularizedData(RegularizedRecipe const& recipe);
  RegularizedData(RegularizedData const&) = delete;
  RegularizedData& operator=(RegularizedData const&) = delete;

  RegularizedInput input() const { return {geometry, p, q, recipe.mass, terms}; }

  RegularizedRecipe recipe;
  std::vector<double> p, q;  // Shares.
  Stored cost, x, y, l1_weights, mask;
  Geometry geometry;
  std::vector<std::int64_t> pair_groups;  // n x m with padding, which holds no valid label.
  RegularizerTerms terms;
  std::vector<double> costs;  // n x m, as stored; +infinity where a pair is forbidden.
};

/// The splitting operators of a backend for these problems.
std::vector<std::unique_ptr<SplittingOperator>> make_splitting(Backend const& backend,
                                                               std::span<RegularizedInput const> inputs,
                                                               Precision precision);

/// Values of a plan and potentials, with what their errors are measured by.
struct OracleValues {
  Real transported_mass, residual_squares, residual_l1, transport_cost, regularization, dual;
  std::int64_t nonzeros;
  Real conjugate_slope;  // Sum of the derivatives of h*.
  Real dual_size;        // Sum of the sizes of what the dual is a sum of.
};

/// One problem inside: costs of range 1 from 0, masses of 1.
class RegularizedOracle {
 public:
  explicit RegularizedOracle(RegularizedData const& data);

  std::int64_t rows() const { return n_; }
  std::int64_t columns() const { return m_; }
  CostScale const& scale() const { return scale_; }
  Vector const& p() const { return p_; }
  Vector const& q() const { return q_; }
  /// C + l1, +infinity for forbidden pairs; n x m.
  Vector const& costs() const { return s_; }

  /// The recursion of regularized/splitting_rule.hpp, word by word.
  struct Splitting {
    Real step, alpha;
    Vector x, phi, psi, a, b;
  };
  Splitting start(Real step) const;
  void set_step(Splitting& state, Real step) const;
  void iterate(Splitting& state) const;

  /// prox of step h, l1 apart, for a non-negative V (n x m).
  Vector prox(Vector const& v, Real step) const;
  /// The entries x >= 0 of a group with slope x_i + h asinh(x_i / width) + threshold x_i / |x|_2 = v_i, v_i >= 0.
  Vector group_solution(Vector const& v, Real threshold, Real slope, Real h) const;
  /// v, or the largest v that is feasible with u where the conjugate is not finite everywhere or leaves a negative dual
  /// value. Of a group of many columns, each column takes a share of the weight in proportion to its norm at u and v.
  Vector feasible(Vector const& u, Vector const& v) const;
  OracleValues evaluate(Vector const& x, Vector const& u, Vector const& v) const;

 private:
  bool allows(std::int64_t i, std::int64_t j) const;
  struct Group {
    std::vector<std::int64_t> pairs;  // i m + j
    Real weight;                      // lambda w_g
  };
  Real slack(std::int64_t pair, Vector const& u, Real v) const;
  Real norm_of_slacks(std::vector<std::int64_t> const& pairs, Vector const& u, Vector const& v) const;
  /// Groups of rows are one group for each column. Pairs in no group, and columns without the term, have weight 0.
  std::vector<Group> groups_;
  bool shares_weights_ = false;  // Groups are of pairs.
  void sum_terms(Splitting& state) const;

  std::int64_t n_, m_;
  CostScale scale_;
  Vector p_, q_, c_, w_, s_;
  Real quadratic_, hypentropy_, width_;
};

/// X, row after row.
std::vector<double> dense(RegularizedPlan const& plan);

}  // namespace monge::oracle
