#include "entropic/policy/anderson.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace monge {

AndersonMixing::AndersonMixing(EntropicBackend const& backend, EntropicOperator& entropic, std::vector<double> const& b)
    : backend_(backend),
      entropic_(entropic),
      vectors_(entropic.vectors()),
      best_f_(vectors_.make(Side::rows)),
      best_g_(vectors_.make(Side::columns)),
      next_f_(vectors_.make(Side::rows)),
      next_g_(vectors_.make(Side::columns)) {
  for (std::unique_ptr<Vector>* vector : {&mixture_.weight, &mixture_.root, &mixture_.start})
    *vector = vectors_.make(Side::columns);
  mixture_.mass = std::accumulate(b.begin(), b.end(), 0.0);
  vectors_.read(VectorView(b), *mixture_.weight);
  std::vector<double> root(b.size());
  std::transform(b.begin(), b.end(), root.begin(), [](double weight) { return std::sqrt(weight); });
  vectors_.read(VectorView(root), *mixture_.root);
}

AndersonMixing::~AndersonMixing() = default;

void AndersonMixing::start() {
  mixture_.images = 0;
  vectors_.copy(std::as_const(entropic_).potential(Side::columns), *mixture_.start);
  mixture_.first_mean = vectors_.dot(*mixture_.weight, *mixture_.start) / mixture_.mass;
}

void AndersonMixing::combine() {
  Vector &f = entropic_.potential(Side::rows), &g = entropic_.potential(Side::columns);
  Vector const &image_f = newest_is_best_ ? f : *next_f_, &image_g = newest_is_best_ ? g : *next_g_;
  ++mixture_.images;
  SweepImage& to = mixture_.images == 1 ? mixture_.last : mixture_.differences[mixture_.newest()];
  if (!to.f) to = {vectors_.make(Side::rows), vectors_.make(Side::columns), vectors_.make(Side::columns)};
  backend_.mix(vectors_, image_f, image_g, mixture_, f, g);
}

void AndersonMixing::add(double eps, bool is_best) {
  mixture_.eps = eps;
  bool const last_was_best = std::exchange(newest_is_best_, is_best);
  if (is_best) return;
  vectors_.copy(std::as_const(entropic_).potential(Side::rows), *next_f_);
  vectors_.copy(std::as_const(entropic_).potential(Side::columns), *next_g_);
  if (last_was_best) {
    vectors_.copy(*mixture_.last.f, *best_f_);
    vectors_.copy(*mixture_.last.g, *best_g_);
  }
  vectors_.copy(*best_f_, entropic_.potential(Side::rows));
  vectors_.copy(*best_g_, entropic_.potential(Side::columns));
}

}  // namespace monge
