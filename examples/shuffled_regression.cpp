// Shuffled linear regression: find W from X (n x d) and Y = X W* + noise whose rows come in an unknown order, by
//
//   min_W L(W) = OT_eps(rows of X W, rows of Y)
//
// L has saddles, where Newton's method fails. So Adam descends until Lanczos, on products with the Hessian, says that
// the smallest eigenvalue is above 0.001, and Newton's method with conjugate gradients finishes. After FlashSinkhorn,
// section 4.2 and Appendix H.4. Neither the plan nor the Hessian is ever in memory:
//
//   grad L = X^T grad_x OT,    H_L V = X^T H_x (X V).
//
//   shuffled_regression [n [eps [seed [FOLDER]]]]     a FOLDER gets newton.npy and adam.npy, one row a step
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <monge/monge.hpp>
#include <random>
#include <string>
#include <vector>

#include "descent.hpp"
#include "npy.hpp"

namespace {

using descent::dot, descent::lanczos, descent::norm, descent::normal, descent::sum, descent::Vector;
constexpr std::int64_t kMarkers = 5;     // d
constexpr double kConvex = 1e-3;         // the smallest eigenvalue from which Newton's method takes over
constexpr double kSmallGradient = 1e-6;  // |grad L| at which a minimum counts as found
constexpr int kProducts = 25;            // of Lanczos: as many as W has entries, so eigenvalues are exact
constexpr int kMostSteps = 1000;

/// X W (n x d), and X^T V (d x d).
Vector times(Vector const& x, Vector const& w) {
  Vector result(x.size());
  for (std::size_t e = 0; e < x.size(); ++e) {
    for (std::size_t k = 0; k < kMarkers; ++k)
      result[e] += x[e / kMarkers * kMarkers + k] * w[k * kMarkers + e % kMarkers];
  }
  return result;
}
Vector transposed_times(Vector const& x, Vector const& v) {
  Vector result(kMarkers * kMarkers);
  for (std::size_t e = 0; e < v.size(); ++e) {
    for (std::size_t k = 0; k < kMarkers; ++k)
      result[k * kMarkers + e % kMarkers] += x[e / kMarkers * kMarkers + k] * v[e];
  }
  return result;
}

/// Cells as a flow cytometer sees them, synthetic: five kinds, each with its level of CD4, CD8, CD19, CD45 and CD3 and
/// a spread in which the markers rise and fall together; markers have mean 0 and deviation 1 over all cells.
Vector synthetic_cells(std::int64_t n, std::mt19937& random) {
  struct Kind {
    double share, level[kMarkers], spread;
  };
  static constexpr Kind kKinds[] = {{0.40, {3.0, 0.5, 0.3, 3.2, 3.0}, 0.25},   // helper T cells
                                    {0.22, {0.4, 3.4, 0.3, 3.2, 2.9}, 0.25},   // cytotoxic T cells
                                    {0.13, {0.4, 0.5, 3.1, 2.9, 0.4}, 0.30},   // B cells
                                    {0.13, {0.4, 1.6, 0.3, 3.1, 0.5}, 0.35},   // natural killers
                                    {0.12, {1.5, 0.7, 0.6, 2.2, 0.6}, 0.45}};  // monocytes
  std::vector<double> shares;
  for (Kind const& kind : kKinds) shares.push_back(kind.share);
  std::discrete_distribution<int> kind_of(shares.begin(), shares.end());
  std::normal_distribution<double> gauss;
  Vector cells(n * kMarkers);
  for (std::int64_t i = 0; i < n; ++i) {
    Kind const& kind = kKinds[kind_of(random)];
    double const size = 0.3 * gauss(random);  // Large cells carry more of every marker.
    for (std::int64_t k = 0; k < kMarkers; ++k)
      cells[i * kMarkers + k] = kind.level[k] * (1 + 0.3 * size) + kind.spread * gauss(random);
  }
  for (std::int64_t k = 0; k < kMarkers; ++k) {
    double mean = 0, square = 0;
    for (std::int64_t i = 0; i < n; ++i) mean += cells[i * kMarkers + k] / n;
    for (std::int64_t i = 0; i < n; ++i) square += std::pow(cells[i * kMarkers + k] - mean, 2) / n;
    for (std::int64_t i = 0; i < n; ++i) cells[i * kMarkers + k] = (cells[i * kMarkers + k] - mean) / std::sqrt(square);
  }
  return cells;
}

/// L at one W after another. Potentials of one start the solve of the next.
class Loss {
 public:
  Loss(monge::Context const& context, Vector x, Vector y, double eps)
      : context_(context), x_(std::move(x)), y_(std::move(y)), eps_(eps), n_(x_.size() / kMarkers) {}

  /// Gradients and products are at this W from here on.
  double at(Vector const& w) {
    moved_ = times(x_, w);
    monge::PointCloud const clouds{view(moved_), view(y_)};
    monge::SolveOptions options{.eps = eps_, .tolerance = 1e-9, .precision = monge::Precision::float64};
    options.f = f_;
    options.g = g_;
    plan_ = std::make_unique<monge::Plan>(monge::solve(context_, clouds, options));
    f_ = plan_->f();
    g_ = plan_->g();
    return plan_->report().dual;
  }
  Vector gradient() const {
    Vector of_points(x_.size());
    plan_->gradients({.x = {of_points.data(), n_, kMarkers}}, {.error_iterations = 0});
    return transposed_times(x_, of_points);
  }
  Vector hessian_times(Vector const& v) const {
    Vector const direction = times(x_, v);
    Vector product(x_.size());
    plan_->hessian_product({.x = view(direction)}, {.x = {product.data(), n_, kMarkers}}, {.tolerance = 1e-7});
    return transposed_times(x_, product);
  }

 private:
  monge::MatrixView view(Vector const& points) const { return {points.data(), n_, kMarkers}; }

  monge::Context context_;
  Vector x_, y_, moved_, f_, g_;
  double eps_;
  std::int64_t n_;
  std::unique_ptr<monge::Plan> plan_;
};

struct Outcome {
  Vector w, history;  // of each step: loss, |gradient|, the smallest eigenvalue or NaN, 1 for Newton, seconds
  int newton_steps = 0;
};

Outcome minimise(Loss& loss, Vector w, bool may_switch) {
  auto const begin = std::chrono::steady_clock::now();
  std::mt19937 random(7);
  descent::Adam adam(w.size(), 0.03);
  descent::LinearMap const hessian = [&](Vector const& v) { return loss.hessian_times(v); };
  Outcome outcome;
  bool convex = false;
  double value = loss.at(w);
  for (int step = 0;; ++step) {
    Vector const gradient = loss.gradient();
    double eigenvalue = std::nan("");
    if (may_switch && (convex || step % 5 == 0)) {
      eigenvalue = lanczos(hessian, w.size(), kProducts, random);
      convex = eigenvalue >= kConvex;
    }
    std::chrono::duration<double> const seconds = std::chrono::steady_clock::now() - begin;
    for (double const number : {value, norm(gradient), eigenvalue, convex ? 1.0 : 0.0, seconds.count()})
      outcome.history.push_back(number);
    if (norm(gradient) < kSmallGradient || step == kMostSteps) break;
    Vector direction =
        convex ? descent::conjugate_gradient(hessian, descent::scaled(-1, gradient), 1e-6) : adam.step(gradient);
    double const slope = dot(gradient, direction), before = value;
    Vector const from = w;
    for (double size = 1;; size /= 2) {  // Armijo's rule is for Newton's steps; Adam may climb.
      w = sum(from, size, direction);
      value = loss.at(w);
      if (!convex || size < 1e-3 || value <= before + 0.1 * size * slope + 1e-12) break;
    }
    outcome.newton_steps += convex ? 1 : 0;
  }
  outcome.w = w;
  return outcome;
}

/// At a minimum, and that products are what differences of gradients tend to.
void check_hessian(Loss& loss, Vector const& w, std::mt19937& random) {
  loss.at(w);
  double const eigenvalue =
      lanczos([&](Vector const& v) { return loss.hessian_times(v); }, w.size(), kProducts, random);
  Vector const v = normal(w.size(), 1, random), product = loss.hessian_times(v);
  double const h = 1e-4;
  Vector difference(w.size());
  for (double const side : {1.0, -1.0}) {
    loss.at(sum(w, side * h, v));
    difference = sum(difference, side / (2 * h), loss.gradient());
  }
  std::printf("smallest eigenvalue %.4f; products with the Hessian off from differences of gradients by %.0e\n",
              eigenvalue, norm(sum(product, -1, difference)) / norm(product));
}

}  // namespace

int main(int count, char** arguments) {
  std::int64_t const n = count > 1 ? std::atoll(arguments[1]) : 100;
  double const eps = count > 2 ? std::atof(arguments[2]) : 0.25;
  std::mt19937 random(count > 3 ? std::atoi(arguments[3]) : 1);
  monge::Context const context =
      monge::cuda_unavailable_reason().empty() ? monge::Context::cuda() : monge::Context::cpu();

  Vector const x = synthetic_cells(n, random);
  Vector const truth = normal(kMarkers * kMarkers, 1 / std::sqrt(double{kMarkers}), random);
  Vector y = times(x, truth);
  y = sum(y, 0.05 * norm(y) / std::sqrt(static_cast<double>(y.size())), normal(y.size(), 1, random));
  Vector const start = normal(kMarkers * kMarkers, 1 / std::sqrt(double{kMarkers}), random);
  // The order of the rows does not enter L, so they need no shuffling.
  Loss loss(context, x, y, eps);
  for (bool const may_switch : {true, false}) {
    Outcome const outcome = minimise(loss, start, may_switch);
    std::int64_t const steps = static_cast<std::int64_t>(outcome.history.size()) / 5;
    double const* const last = &outcome.history[5 * (steps - 1)];
    std::printf("%s: %lld steps, %d of Newton, L %.6f, |grad L| %.1e, %.1f s, |W - W*| / |W*| %.3f\n",
                may_switch ? "Adam, then Newton" : "Adam alone", static_cast<long long>(steps - 1),
                outcome.newton_steps, last[0], last[1], last[4], norm(sum(outcome.w, -1, truth)) / norm(truth));
    if (may_switch) check_hessian(loss, outcome.w, random);
    if (count > 4)
      npy::write(arguments[4] + std::string(may_switch ? "/newton.npy" : "/adam.npy"), {steps, 5}, outcome.history);
  }
}
