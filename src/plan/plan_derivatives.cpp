#include "plan/plan_derivatives.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/require.hpp"
#include "plan/conjugate_gradient.hpp"

namespace monge {
namespace {

/// With a smaller tolerance conjugate gradients lose more steps to the errors of the rough plan than they save. A
/// tolerance of 0 asks for a number of steps.
constexpr double kRoughTolerance = 1e-6;

/// A power of two near `size`; 1 for 0 and infinity.
double power_near(double size) {
  return size > 0 && std::isfinite(size) ? std::exp2(std::round(std::log2(size))) : 1.0;
}
/// The same near the root mean square of numbers with this sum of squares.
double unit_of(double squares, std::int64_t count) {
  return power_near(std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(count, 1))));
}

}  // namespace

PlanDerivatives::PlanDerivatives(PlanOperator& plan, PlanOperator* rough, double eps, Penalties penalties,
                                 std::int64_t dimension, Precision precision)
    : plan_(plan),
      rough_(rough),
      vectors_(plan.vectors()),
      eps_(eps),
      penalties_(penalties),
      dimension_(dimension),
      rounding_(precision == Precision::float64 ? 0x1p-53 : 0x1p-24) {}

double PlanDerivatives::penalty_ratio(Side side) const {
  return eps_ / penalties_.of(side);
}

std::unique_ptr<Vector> PlanDerivatives::make(Side side, bool wide) const {
  return vectors_.make(side, wide ? dimension_ : 1);
}

void PlanDerivatives::combine(std::initializer_list<Term> terms, Vector& out) const {
  vectors_.combine(terms, out);
}

/// P in or P^T in, of any width.
std::unique_ptr<Vector> PlanDerivatives::product(Side side, Vector const& in) {
  std::unique_ptr<Vector> out = vectors_.make(side, in.width());
  plan_.multiply(side, in, *out);
  return out;
}

template <class Fill>
Vector const& PlanDerivatives::filled(std::unique_ptr<Vector>& slot, Side side, bool wide, Fill const& fill) {
  if (!slot) {
    std::unique_ptr<Vector> fresh = make(side, wide);
    fill(*fresh);
    slot = std::move(fresh);
  }
  return *slot;
}

Vector const& PlanDerivatives::inverse_marginal(Side side) {
  return filled(kept(side).inverse_marginal, side, false,
                [&](Vector& out) { vectors_.reciprocal(plan_.marginal(side), out); });
}

Vector const& PlanDerivatives::support(Side side) {
  return filled(kept(side).support, side, false, [&](Vector& out) {
    combine({{1, &plan_.marginal(side), &inverse_marginal(side)}}, out);
    // Rounds to exactly 1: projecting a multiple of the support away then leaves exact zeros.
    combine({{2, &out}, {-1, &out, &out}}, out);
  });
}

Vector const& PlanDerivatives::features(Side side) {
  return filled(kept(side).features, side, true, [&](Vector& out) { plan_.points().features(side, out); });
}

Vector const& PlanDerivatives::slopes(Side side) {
  return filled(kept(side).slopes, side, true, [&](Vector& out) { plan_.points().slopes(side, out); });
}

Vector const& PlanDerivatives::far_features(Side side) {
  return filled(kept(side).far_features, side, true, [&](Vector& out) { plan_.points().multiply_features(side, out); });
}

/// At eps / 2 the same potentials give a_i b_j exp(2 (f_i + g_j - C_ij) / eps) = P_ij^2 / (a_i b_j).
Vector const& PlanDerivatives::overlap() {
  return filled(overlap_, Side::columns, false, [&](Vector& out) {
    std::unique_ptr<Vector> const row = make(Side::rows), column = make(Side::columns);
    plan_.weight_terms(Side::rows, penalties_.a, {.ratio = row.get()});
    vectors_.reciprocal(*row, *row);
    plan_.weight_terms(Side::columns, penalties_.b, {.ratio = column.get()});
    vectors_.reciprocal(*column, *column);
    plan_.at_eps(0.5 * eps_)->multiply(Side::columns, *row, out);
    combine({{1, &out, column.get()}}, out);
  });
}

/// The mean marginal of the points with mass.
double PlanDerivatives::mean_marginal(Side side) {
  Vector const& present = support(side);
  return vectors_.dot(plan_.marginal(side), present) / std::max(vectors_.dot(present, present), 1.0);
}

/// A power of two near the mean marginal where squares of marginals leave the range of float64; else 1.
double PlanDerivatives::mass_unit() {
  if (!mass_unit_) {
    double const mean = mean_marginal(Side::columns);
    mass_unit_ = mean > 0x1p-400 && mean < 0x1p400 ? 1 : power_near(mean);
  }
  return *mass_unit_;
}

/// Whether the rough plan suits steps: points of far less mass than others need products with all digits.
bool PlanDerivatives::has_rough_steps() {
  if (!rough_) return false;
  if (!suits_rough_) {
    suits_rough_ = true;
    for (Side const side : kSides)
      if (!(vectors_.norms(inverse_marginal(side)).linf() * mean_marginal(side) <= 0x1p30)) suits_rough_ = false;
  }
  return *suits_rough_;
}

Vector const& PlanDerivatives::rough_marginal() {
  return filled(rough_marginal_, Side::columns, false, [&](Vector& out) {
    rough_->multiply_gram(Side::columns, inverse_marginal(Side::rows), support(Side::columns), out);
  });
}

/// From derivatives w_i by features to those by points; for the cosine (w_i - u_i <u_i, w_i>) / |x_i|. The map is
/// symmetric, so it also takes a motion of the points to that of their features.
void PlanDerivatives::by_points(Side side, Vector& w) {
  if (!has_directions()) return;
  Kept& of = kept(side);
  if (!of.inverse_length) {
    of.direction = make(side, true);
    std::unique_ptr<Vector> inverse = make(side);
    plan_.points().directions(side, *of.direction, *inverse);
    of.inverse_length = std::move(inverse);
  }
  std::unique_ptr<Vector> const along = make(side);
  vectors_.row_dots(*of.direction, w, *along);
  combine({{1, &w}, {-1, of.direction.get(), along.get()}}, w);
  combine({{1, &w, of.inverse_length.get()}}, w);
}

void PlanDerivatives::feature_gradient(Side side, Vector& out) {
  Vector const& far = far_features(side);  // First: on the CPU this product finds the marginal, too.
  combine({{1, &slopes(side), &plan_.marginal(side)}, {cost().form().product, &far}}, out);
}

void PlanDerivatives::gradient(Side side, Vector& out) {
  if (cost().is_distance()) return plan_.points().distance_gradients(side, nullptr, nullptr, out);
  feature_gradient(side, out);
  by_points(side, out);
}

void PlanDerivatives::weighted_gradient(Side side, Vector const& l, Vector const& r, Vector& out) {
  if (cost().is_distance()) return plan_.points().distance_gradients(side, &l, &r, out);
  std::unique_ptr<Vector> const total = make(side), far = make(side, true);
  vectors_.row_dots(l, *product(side, r), *total);
  plan_.multiply_hadamard(side, l, r, features(opposite(side)), *far);
  combine({{1, &slopes(side), total.get()}, {cost().form().product, far.get()}}, out);
  by_points(side, out);
}

/// The inverse of the diagonal of S (solve), which preconditions it.
std::unique_ptr<Vector> PlanDerivatives::inverse_of_diagonal(double k_a, double k_b) {
  // Where P nearly matches points one to one, the diagonal of S is smaller than its rounding.
  constexpr double kLeastDiagonal = 0x1p-10;
  Vector const& c = plan_.marginal(Side::columns);
  std::unique_ptr<Vector> inverse = make(Side::columns);
  combine({{k_b + kLeastDiagonal, &c}, {-1 / k_a, &c, &overlap()}}, *inverse);
  vectors_.reciprocal(*inverse, *inverse);
  return inverse;
}

/// Eliminating df leaves (S + damping diag(c)) dg = b with
///   S = k_b diag(c) - P^T diag(1 / r) P / k_a,   b = right of columns - P^T (right of rows / r) / k_a.
/// S 1 = delta c with delta = k_b - 1 / k_a, so the constant in dg is sum b / (delta sum c), and the rest of dg is the
/// solution for b less its part along c. Where delta > 0 the rest is orthogonal to c: S maps such vectors to vectors of
/// sum 0, and the preconditioner, the inverse diagonal of S with a projection, maps these back. Conjugate gradients
/// then never meet the constants, however small delta is. Where delta = 0 constants have no effect.
PlanDerivatives::Response PlanDerivatives::solve(VectorPair const& right, LinearOptions const& options, double terms) {
  double const k_a = 1 + penalty_ratio(Side::rows), k_b = 1 + penalty_ratio(Side::columns) + options.damping;
  double const of_rows = penalty_ratio(Side::rows) / k_a;  // 1 - 1 / k_a
  double const delta = penalty_ratio(Side::columns) + of_rows + options.damping;
  Vector const& c = plan_.marginal(Side::columns);
  Vector const& inverse_r = inverse_marginal(Side::rows);

  std::unique_ptr<Vector> const on_rows = make(Side::rows), b = make(Side::columns);
  combine({{1 / k_a, right[Side::rows], &inverse_r}}, *on_rows);
  plan_.multiply(Side::columns, *on_rows, *b);
  // The system is solved in units in which S and b are near 1.
  double const unit = mass_unit();
  double right_unit = 1;
  Vector const* own = right[Side::columns];
  std::unique_ptr<Vector> scaled;
  if (unit != 1) {
    right_unit = power_near(std::max(vectors_.norms(*own).linf(), vectors_.norms(*b).linf()));
    combine({{1 / right_unit, own}}, *(scaled = make(Side::columns)));
    combine({{1 / right_unit, b.get()}}, *b);
    own = scaled.get();
  }
  double squares[2];
  std::pair<Vector const*, Vector const*> const parts[2] = {{own, own}, {b.get(), b.get()}};
  vectors_.dots(parts, squares);
  combine({{1, own}, {-1, b.get()}}, *b);
  double sums[2];
  std::pair<Vector const*, Vector const*> const pairs[2] = {{b.get(), &support(Side::columns)},
                                                            {&c, &support(Side::columns)}};
  vectors_.dots(pairs, sums);
  double const mean = sums[1] > 0 ? sums[0] / sums[1] : 0.0;
  combine({{1, b.get()}, {-mean, &c}}, *b);

  Response result;
  Vector& dg = *(result.change[Side::columns] = make(Side::columns));
  Vector& df = *(result.change[Side::rows] = make(Side::rows));
  std::unique_ptr<Vector> const inverse_diagonal = inverse_of_diagonal(k_a, k_b);
  // With the rough plan's own marginal the matrix is a sum of squares of differences, weighted by products of entries,
  // so its eigenvalues have the relative errors of entries, however small they are.
  auto const matrix_of = [&](PlanOperator& plan, Vector const& marginal) {
    return [&](Vector const& in, Vector& out) {
      plan.multiply_gram(Side::columns, inverse_r, in, out);
      combine({{k_b / unit, &in, &marginal}, {-1 / k_a / unit, &out}}, out);
    };
  };
  LinearSystem const system{
      .matrix = matrix_of(plan_, c),
      .preconditioner =
          [&](Vector const& in, Vector& out) {
            combine({{unit, &in, inverse_diagonal.get()}}, out);
            if (delta > 0) combine({{1, &out}, {-vectors_.dot(out, c) / sums[1], &support(Side::columns)}}, out);
          },
      .null_vector = &support(Side::columns),
      .correction = &c,
      .rough_matrix = (options.tolerance == 0 || options.tolerance >= kRoughTolerance) && has_rough_steps()
                          ? LinearMap(matrix_of(*rough_, rough_marginal()))
                          : LinearMap()};
  // Where P nearly matches points one to one, the parts of b cancel. A residual below their rounding means nothing, and
  // steps on it would fill dg with noise. Where b is no more than rounding, dg is 0.
  double const size = std::sqrt(vectors_.dot(*b, *b)),
               rounding = rounding_ * (std::sqrt(squares[0]) + std::sqrt(squares[1]));
  bool const is_noise = size <= 4 * (rounding + rounding_ * terms / right_unit);
  if (is_noise) combine({{0, b.get()}}, *b);
  bool const is_rough = !is_noise && rounding_ <= options.tolerance && options.tolerance * size < rounding;
  double const tolerance = is_rough ? rounding / size : options.tolerance;
  ConjugateGradientResult const end = conjugate_gradient(vectors_, system, *b, dg, {tolerance, options.iterations});
  // S is semidefinite for any P: a curvature that is not positive comes from rounding.
  LinearStatus const status = end.status == LinearStatus::negative_curvature ? LinearStatus::stagnation : end.status;
  result.report = {status, end.iterations, end.residual};

  if (unit != 1) combine({{right_unit / unit, &dg}}, dg);
  plan_.multiply(Side::rows, dg, *on_rows);
  combine({{1 / k_a, right[Side::rows], &inverse_r}, {-1 / k_a, on_rows.get(), &inverse_r}}, df);
  // With delta below the rounding of the sums, the constant would be rounding alone, and has no effect.
  double const constant = delta > 0x1p-52 ? mean * right_unit / delta : 0.0;
  result.constant[side_index(Side::rows)] = -constant / k_a;
  result.constant[side_index(Side::columns)] = constant;
  result.of_both = constant * of_rows;
  return result;
}

double PlanDerivatives::terms_of(Side side, Vector const& l, Vector const& r) {
  std::unique_ptr<Vector> const of_l = make(side), of_r = make(side), scaled = vectors_.make(side, r.width());
  combine({{1 / mass_unit(), &r}}, *scaled);
  vectors_.row_dots(l, l, *of_l);
  vectors_.row_dots(*scaled, *scaled, *of_r);
  return mass_unit() * std::sqrt(vectors_.dot(*of_l, *of_r));
}

/// sum_j P_ij (df_i + dg_j), by the equation of the row.
std::unique_ptr<Vector> PlanDerivatives::totals(Side side, Vector const& right, Response const& response) {
  std::unique_ptr<Vector> total = make(side);
  Vector const& marginal = plan_.marginal(side);
  double const ratio = penalty_ratio(side);
  combine({{1, &right},
           {-ratio, &marginal, response.change[side]},
           {-ratio * response.constant[side_index(side)], &marginal}},
          *total);
  return total;
}

/// A power of two near the root mean square of a vector. Where points of little mass have far larger numbers than the
/// others, near the mean size by mass: these numbers stand beside those of the other side, which would have no digits.
double PlanDerivatives::unit(Side side, Vector const& vector) {
  double const size = std::sqrt(vectors_.dot(vector, vector) / static_cast<double>(vector.rows() * vector.width()));
  std::unique_ptr<Vector> const weighted = vectors_.make(side, vector.width());
  combine({{1, &vector, &plan_.marginal(side)}}, *weighted);
  double const mass = vectors_.dot(plan_.marginal(side), support(side)) * static_cast<double>(vector.width());
  double const by_mass = vectors_.norms(*weighted).l1 / mass;
  constexpr double kFarLarger = 0x1p20;  // Two fp16 numbers are off by 2^-40.
  return power_near(size <= kFarLarger * by_mass ? size : by_mass);
}

/// (df_i + dg_j) / factor + t_ij = <left_i, right_j>, t the sum of the tilts. The inner width is 2 plus the widths of
/// the tilts. All columns of the right factor are scaled to the size of the points, so that none is lost in another's
/// rounding.
PlanDerivatives::Factors PlanDerivatives::tilted_entries(Side side, Response const& response, double factor,
                                                         std::span<Tilt const> tilts) {
  Side const far = opposite(side);
  std::unique_ptr<Vector> const shift = make(side);
  combine({{1 / factor, response.change[side]}, {response.of_both / factor, &support(side)}}, *shift);
  std::int64_t width = 2;
  for (Tilt const& tilt : tilts) width += tilt.left->width();
  Factors factors{vectors_.make(side, width), vectors_.make(far, width)};
  double& size = kept(far).size_of_features;
  if (size == 0) size = unit_of(vectors_.dot(features(far), features(far)), dimension_ * plan_.size(far));
  double const ratio = unit(far, *response.change[far]) / std::abs(factor) / size;
  std::vector<Term> of_left{{1 / size, shift.get()}, {ratio, &support(side)}};
  std::vector<Term> of_right{{size, &support(far)}, {1 / (factor * ratio), response.change[far]}};
  for (Tilt const& tilt : tilts) {
    double const scale = unit(far, *tilt.right) / size;
    of_left.push_back({tilt.factor * scale, tilt.left});
    of_right.push_back({1 / scale, tilt.right});
  }
  vectors_.concatenate(of_left, *factors.left);
  vectors_.concatenate(of_right, *factors.right);
  return factors;
}

/// sum_j P_ij ((df_i + dg_j) / factor + t_ij) y'_j, by two plain products without tilts.
std::unique_ptr<Vector> PlanDerivatives::tilted(Side side, Response const& response, double factor,
                                                std::span<Tilt const> tilts) {
  Side const far = opposite(side);
  if (tilts.empty()) {
    std::unique_ptr<Vector> const shift = make(side), weighted = make(far, true);
    combine({{1 / factor, response.change[side]}, {response.of_both / factor, &support(side)}}, *shift);
    combine({{1 / factor, &features(far), response.change[far]}}, *weighted);
    std::unique_ptr<Vector> out = product(side, *weighted);
    combine({{1, out.get()}, {1, &far_features(side), shift.get()}}, *out);
    return out;
  }
  Factors const factors = tilted_entries(side, response, factor, tilts);
  std::unique_ptr<Vector> out = make(side, true);
  plan_.multiply_hadamard(side, *factors.left, *factors.right, features(far), *out);
  return out;
}

/// sum_j P_ij (df_i + dg_j + t_ij) dC_ij/dx_i, t the sum of the tilts, where the entries sum to `total`.
void PlanDerivatives::tilted_gradient(Side side, Vector const& total, Response const& response,
                                      std::span<Tilt const> tilts, Vector& out) {
  if (cost().is_distance()) {
    Factors const factors = tilted_entries(side, response, 1, tilts);
    return plan_.points().distance_gradients(side, factors.left.get(), factors.right.get(), out);
  }
  std::unique_ptr<Vector> const tilt = tilted(side, response, 1, tilts);
  combine({{1, &slopes(side), &total}, {cost().form().product, tilt.get()}}, out);
  by_points(side, out);
}

PlanDerivatives::Distance PlanDerivatives::distance(int iterations) {
  // A Newton step for the potentials: the right side is eps times (wanted less present marginals).
  VectorPair right;
  for (Side const side : kSides) {
    Vector& lack = *(right[side] = make(side));
    plan_.weight_terms(side, penalties_.of(side), {.wanted = &lack});
    combine({{eps_, &lack}, {-eps_, &plan_.marginal(side)}}, lack);
  }
  Response const step = solve(right, {.tolerance = 0.1, .iterations = iterations});
  double change = 0, all = 0;
  if (dimension_ == 0) {
    std::unique_ptr<Vector> const far = make(Side::rows);
    plan_.multiply(Side::rows, *step.change[Side::columns], *far);
    for (Side const side : kSides) {
      std::unique_ptr<Vector> const full = make(side), weighted = make(side);
      double const constant = side == Side::rows ? step.of_both : 0.0;
      combine({{1, step.change[side]}, {constant, &support(side)}}, *full);
      combine({{1, full.get(), &plan_.marginal(side)}}, *weighted);
      change += vectors_.dot(*full, *weighted);
      if (side == Side::rows) {
        change += 2 * vectors_.dot(*full, *far);
        all += vectors_.dot(plan_.marginal(side), support(side));
      }
    }
  } else {
    for (Side const side : kSides) {
      std::unique_ptr<Vector> const own = make(side, true);
      tilted_gradient(side, *totals(side, *right[side], step), step, {}, *own);
      combine({{1 / mass_unit(), own.get()}}, *own);
      change += vectors_.dot(*own, *own);
      gradient(side, *own);
      combine({{1 / mass_unit(), own.get()}}, *own);
      all += vectors_.dot(*own, *own);
    }
  }
  // Rounding may leave a sum of squares just below 0. NaN stays.
  double const relative = change <= 0 ? 0.0 : std::sqrt(change / all) / eps_;
  bool const is_lost = step.report.status == LinearStatus::breakdown;
  return {is_lost ? std::numeric_limits<double>::quiet_NaN() : relative, step.report.iterations};
}

/// Divides v by a power of two, which it returns, to a root mean square near 1. If the squares leave the range of
/// float64, a first scaling brings them back.
double PlanDerivatives::normalise(VectorPair const& v) const {
  auto const mean_square = [&] {
    double squares = 0;
    std::int64_t count = 0;
    for (Side const side : kSides) {
      if (!v[side]) continue;
      squares += vectors_.dot(*v[side], *v[side]);
      count += v[side]->rows() * v[side]->width();
    }
    return squares / static_cast<double>(std::max<std::int64_t>(count, 1));
  };
  auto const multiply = [&](double factor) {
    for (Side const side : kSides) {
      if (v[side]) combine({{factor, v[side]}}, *v[side]);
    }
  };
  double square = mean_square(), step = 1;
  if (!(square > 0x1p-900 && square < 0x1p900)) {
    step = square < 1 ? 0x1p600 : 0x1p-600;
    multiply(step);
    square = mean_square();
  }
  double const size = unit_of(square, 1);
  multiply(1 / size);
  return size / step;
}

void PlanDerivatives::require_solvable(VectorPair const& right, double size) {
  if (penalty_ratio(Side::rows) > 0 || penalty_ratio(Side::columns) > 0) return;
  double sums[2], sizes = 0;
  for (Side const side : kSides) {
    std::pair<Vector const*, Vector const*> const pairs[2] = {{right[side], &support(side)},
                                                              {right[side], right[side]}};
    double values[2];
    vectors_.dots(pairs, values);
    sums[side_index(side)] = values[0];
    sizes += std::sqrt(values[1] * static_cast<double>(plan_.size(side)));
  }
  // Equal sums may differ by this much in float32.
  require(std::abs(sums[0] - sums[1]) <= 1e-5 * sizes,
          "of_f, of_g: sum to {} and {} over the points of weight; must be equal, for f and g are unique up to a "
          "constant",
          size * sums[0], size * sums[1]);
}

/// With K the matrix of solve(), K (df, dg) is linear in the changes of costs and weights, and dL = <right, (df, dg)>.
/// The solution (u, w) for `right` therefore gives dL/dC_ij = P_ij (u_i + w_j), dL/da_i = -eps (P w)_i / a_i and
/// dL/db_j = -eps (P^T u)_j / b_j.
LinearReport PlanDerivatives::potential_gradients(VectorPair right, VectorPair const& points, VectorPair const& weights,
                                                  LinearOptions const& options) {
  for (Side const side : kSides) {
    std::unique_ptr<Vector> const rest = make(side);
    combine({{1, right[side].get()}, {-1, right[side].get(), &support(side)}}, *rest);
    require(
        vectors_.norms(*rest).linf() == 0,
        "{}: is not 0 at a point without mass, of weight 0 or with a marginal below 2.2e-308; must be 0 there, where "
        "the potential is a function of the other side's",
        side == Side::rows ? "of_f" : "of_g");
  }
  double const size = normalise(right);
  require_solvable(right, size);
  Response const response = solve(right, options);
  for (Side const side : kSides) {
    Side const far = opposite(side);
    if (points[side] != nullptr) {
      tilted_gradient(side, *totals(side, *right[side], response), response, {}, *points[side]);
      combine({{size, points[side]}}, *points[side]);
    }
    if (weights[side] == nullptr) continue;
    std::unique_ptr<Vector> const ratio = make(side), mean = make(side);
    plan_.weight_terms(side, penalties_.of(side), {.ratio = ratio.get()});
    plan_.multiply(side, Scaling::shares, *response.change[far], *mean);
    combine({{-eps_ * size, ratio.get(), mean.get()}, {-eps_ * size * response.constant[side_index(far)], ratio.get()}},
            *weights[side]);
  }
  return response.report;
}

/// With K as above, d<u, P v> = <G, dP> for G = u v^T, and eps dP = P o (df + dg - dC) at fixed weights. The solution
/// (s, t) for the sums over rows and over columns of P o G / eps therefore gives the derivatives by costs
/// W = P o (s + t - G / eps). dP_ij / da_i = P_ij / a_i at fixed potentials adds (P v)_i u_i / a_i to those by weights.
LinearReport PlanDerivatives::product_gradients(VectorPair factors, VectorPair const& points, VectorPair const& weights,
                                                LinearOptions const& options) {
  double size = 1;
  for (Side const side : kSides) {
    VectorPair one;
    one[side] = std::move(factors[side]);
    size *= normalise(one);
    factors[side] = std::move(one[side]);
  }
  VectorPair right;
  double terms = 0;
  for (Side const side : kSides) {
    std::unique_ptr<Vector> const far = product(side, *factors[opposite(side)]);
    right[side] = make(side);
    vectors_.row_dots(*factors[side], *far, *right[side]);
    terms += terms_of(side, *factors[side], *far);
  }
  double const size_of_right = normalise(right);  // Its unit is eps.
  Response const response = solve(right, options, terms / size_of_right);
  for (Side const side : kSides) {
    Side const far = opposite(side);
    if (points[side] != nullptr) {
      Tilt const tilt{-1 / size_of_right, factors[side].get(), factors[far].get()};
      std::unique_ptr<Vector> const total = totals(side, *right[side], response);
      combine({{1, total.get()}, {-1, right[side].get()}}, *total);
      tilted_gradient(side, *total, response, {&tilt, 1}, *points[side]);
      combine({{size * size_of_right / eps_, points[side]}}, *points[side]);
    }
    if (weights[side] == nullptr) continue;
    std::unique_ptr<Vector> const ratio = make(side), mean = make(side), direct = make(side),
                                  average = vectors_.make(side, factors[far]->width());
    plan_.weight_terms(side, penalties_.of(side), {.ratio = ratio.get()});
    plan_.multiply(side, Scaling::shares, *response.change[far], *mean);
    plan_.multiply(side, Scaling::shares, *factors[far], *average);
    vectors_.row_dots(*factors[side], *average, *direct);
    combine({{size, ratio.get(), direct.get()},
             {-size * size_of_right, ratio.get(), mean.get()},
             {-size * size_of_right * response.constant[side_index(far)], ratio.get()}},
            *weights[side]);
  }
  return response.report;
}

}  // namespace monge
