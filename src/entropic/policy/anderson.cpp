#include "entropic/policy/anderson.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "core/numbers.hpp"

namespace monge {
namespace {

/// Share of the trace that is added to the diagonal of the least-squares problem.
constexpr double kRidge = 1e-6;
/// A constant of more than so many eps is taken out of a combination.
constexpr double kFar = 1024;

}  // namespace

AndersonMixing::AndersonMixing(EntropicOperator& entropic, std::vector<double> const& b)
    : entropic_(entropic),
      vectors_(entropic.vectors()),
      mass_(std::accumulate(b.begin(), b.end(), 0.0)),
      weight_(vectors_.make(Side::columns)),
      root_(vectors_.make(Side::columns)),
      start_(vectors_.make(Side::columns)),
      best_f_(vectors_.make(Side::rows)),
      best_g_(vectors_.make(Side::columns)),
      last_(make_image()),
      next_(make_image()) {
  vectors_.read(VectorView(b), *weight_);
  std::vector<double> root(b.size());
  std::transform(b.begin(), b.end(), root.begin(), [](double weight) { return std::sqrt(weight); });
  vectors_.read(VectorView(root), *root_);
}

AndersonMixing::~AndersonMixing() = default;

AndersonMixing::Image AndersonMixing::make_image() const {
  return {vectors_.make(Side::rows), vectors_.make(Side::columns), vectors_.make(Side::columns)};
}

void AndersonMixing::start() {
  images_ = 0;
  is_added_ = false;
  vectors_.copy(std::as_const(entropic_).potential(Side::columns), *start_);
  mean_ = vectors_.dot(*weight_, *start_) / mass_;
}

void AndersonMixing::combine() {
  if (std::exchange(is_added_, false)) absorb();
  Weights const weights = this->weights();
  double shift = mean_ - last_.mean;
  for (std::size_t k = 0; k < count(); ++k) shift += weights[k] * differences_[k].mean;
  if (!(std::abs(shift) > kFar * eps_)) shift = 0;
  Vector& f = entropic_.potential(Side::rows);
  vectors_.combine({{1, last_.f.get()}, {-shift, nullptr}}, f);
  take_away(weights, &Image::f, f);
  vectors_.combine({{1, last_.g.get()}, {shift, nullptr}}, *start_);
  take_away(weights, &Image::g, *start_);
  vectors_.copy(*start_, entropic_.potential(Side::columns));
}

/// out -= sum_k weights_k differences_k
void AndersonMixing::take_away(Weights const& weights, std::unique_ptr<Vector> Image::*part, Vector& out) const {
  int const count = static_cast<int>(this->count());
  for (int first = 0; first < count; first += static_cast<int>(kMostTerms) - 1) {
    std::vector<Term> terms{{1, &out}};
    for (int k = first; k < std::min<int>(count, first + static_cast<int>(kMostTerms) - 1); ++k)
      terms.push_back({-weights[to_size(k)], (differences_[to_size(k)].*part).get()});
    vectors_.combine(terms, out);
  }
}

/// The weights of the differences for which the last residual, less the differences of residuals, is shortest. All 0
/// where rounding or overflow leaves no solution.
AndersonMixing::Weights AndersonMixing::weights() const {
  std::size_t const count = this->count();
  std::array<Weights, kDepth> matrix = gram_;
  Weights solution = right_;
  double trace = 0;
  for (std::size_t k = 0; k < count; ++k) trace += gram_[k][k];
  for (std::size_t k = 0; k < count; ++k) matrix[k][k] += kRidge * trace;
  // Gauss's elimination: a positive definite matrix needs no pivots.
  for (std::size_t k = 0; k < count; ++k) {
    if (!(matrix[k][k] > 0) || !std::isfinite(matrix[k][k])) return {};
    for (std::size_t i = k + 1; i < count; ++i) {
      double const factor = matrix[i][k] / matrix[k][k];
      for (std::size_t j = k; j < count; ++j) matrix[i][j] -= factor * matrix[k][j];
      solution[i] -= factor * solution[k];
    }
  }
  for (std::size_t k = count; k-- > 0;) {
    for (std::size_t j = k + 1; j < count; ++j) solution[k] -= matrix[k][j] * solution[j];
    solution[k] /= matrix[k][k];
    if (!std::isfinite(solution[k])) return {};
  }
  return solution;
}

void AndersonMixing::find_residual(Image& image) const {
  std::array<std::pair<Vector const*, Vector const*>, 2> const pairs{
      {{weight_.get(), start_.get()}, {weight_.get(), image.g.get()}}};
  std::array<double, 2> sums{};
  vectors_.dots(pairs, sums);
  image.mean = sums[1] / mass_;
  Vector& residual = *image.residual;
  vectors_.combine({{1, image.g.get()}, {(sums[0] - sums[1]) / mass_, nullptr}}, residual);
  vectors_.exp_difference(*root_, *start_, residual, eps_, residual);
  vectors_.combine({{1, root_.get()}, {-1, &residual}}, residual);
}

/// Makes `next_` the last image, and brings the least-squares problem up to date.
void AndersonMixing::absorb() {
  find_residual(next_);
  if (images_ > 0) {
    std::size_t const newest = to_size((images_ - 1) % kDepth), count = to_size(std::min(images_, kDepth));
    Image& difference = differences_[newest];
    if (!difference.f) difference = make_image();
    for (auto const part : {&Image::f, &Image::g, &Image::residual})
      vectors_.combine({{1, (next_.*part).get()}, {-1, (last_.*part).get()}}, *(difference.*part));
    difference.mean = next_.mean - last_.mean;
    std::array<std::pair<Vector const*, Vector const*>, kDepth> pairs;
    for (std::size_t k = 0; k < count; ++k) pairs[k] = {differences_[k].residual.get(), difference.residual.get()};
    vectors_.dots(std::span(pairs).first(count), std::span(gram_[newest]).first(count));
    // The last residual has grown by the newest difference.
    for (std::size_t k = 0; k < count; ++k) right_[k] += gram_[k][newest] = gram_[newest][k];
    right_[newest] = vectors_.dot(*difference.residual, *next_.residual);
  }
  ++images_;
  std::swap(last_, next_);
}

void AndersonMixing::add(double eps, bool is_best) {
  EntropicOperator const& entropic = entropic_;
  eps_ = eps;
  is_added_ = true;
  vectors_.copy(entropic.potential(Side::rows), *next_.f);
  vectors_.copy(entropic.potential(Side::columns), *next_.g);
  bool const last_was_best = std::exchange(newest_is_best_, is_best);
  if (is_best) return;
  if (last_was_best) {
    vectors_.copy(*last_.f, *best_f_);
    vectors_.copy(*last_.g, *best_g_);
  }
  vectors_.copy(*best_f_, entropic_.potential(Side::rows));
  vectors_.copy(*best_g_, entropic_.potential(Side::columns));
}

}  // namespace monge
