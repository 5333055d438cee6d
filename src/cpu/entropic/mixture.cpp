#include "cpu/entropic/mixture.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/numbers.hpp"

namespace monge::cpu {
namespace {

using Pair = std::pair<Vector const*, Vector const*>;

/// Writes the residual to `residual`. Returns the mean of the image.
double find_residual(VectorOperations const& vectors, Mixture const& mixture, Vector const& image_g, Vector& residual) {
  std::array<Pair, 2> const pairs{{{mixture.weight.get(), mixture.start.get()}, {mixture.weight.get(), &image_g}}};
  std::array<double, 2> sums{};
  vectors.dots(pairs, sums);
  vectors.combine({{1, &image_g}, {(sums[0] - sums[1]) / mixture.mass, nullptr}}, residual);
  vectors.exp_difference(*mixture.root, *mixture.start, residual, mixture.eps, residual);
  vectors.combine({{1, mixture.root.get()}, {-1, &residual}}, residual);
  return sums[1] / mixture.mass;
}

/// Makes the image the last one, and brings the least-squares problem up to date.
void absorb(VectorOperations const& vectors, Vector const& image_f, Vector const& image_g, Mixture& mixture) {
  SweepImage& last = mixture.last;
  MixingSums& sums = mixture.sums;
  int const count = mixture.count();
  if (count == 0) {
    sums.last_mean = find_residual(vectors, mixture, image_g, *last.residual);
  } else {
    std::size_t const newest = mixture.newest();
    SweepImage& difference = mixture.differences[newest];
    double const mean = find_residual(vectors, mixture, image_g, *difference.residual);
    std::swap(difference.residual, last.residual);
    vectors.combine({{1, last.residual.get()}, {-1, difference.residual.get()}}, *difference.residual);
    vectors.combine({{1, &image_f}, {-1, last.f.get()}}, *difference.f);
    vectors.combine({{1, &image_g}, {-1, last.g.get()}}, *difference.g);
    std::array<Pair, kMixedDifferences> pairs;
    std::array<double, kMixedDifferences> products{};
    for (std::size_t k = 0; k < to_size(count); ++k)
      pairs[k] = {mixture.differences[k].residual.get(), difference.residual.get()};
    vectors.dots(std::span(pairs).first(to_size(count)), std::span(products).first(to_size(count)));
    sums.add(static_cast<int>(newest), count, products.data(), vectors.dot(*difference.residual, *last.residual), mean);
  }
  vectors.copy(image_f, *last.f);
  vectors.copy(image_g, *last.g);
}

/// out = last + shift - the multiples of the differences, for a part of the images.
void combine(VectorOperations const& vectors, Mixture const& mixture, double const* multiples, double shift,
             std::unique_ptr<Vector> SweepImage::*part, Vector& out) {
  constexpr int kTerms = static_cast<int>(kMostTerms) - 1;
  vectors.combine({{1, (mixture.last.*part).get()}, {shift, nullptr}}, out);
  for (int first = 0; first < mixture.count(); first += kTerms) {
    std::vector<Term> terms{{1, &out}};
    for (int k = first; k < std::min(mixture.count(), first + kTerms); ++k)
      terms.push_back({-multiples[k], (mixture.differences[to_size(k)].*part).get()});
    vectors.combine(terms, out);
  }
}

}  // namespace

void mix(VectorOperations const& vectors, Vector const& image_f, Vector const& image_g, Mixture& mixture, Vector& f,
         Vector& g) {
  absorb(vectors, image_f, image_g, mixture);
  double multiples[kMixedDifferences];
  mixture.sums.solve(mixture.count(), multiples);
  double const shift = mixture.sums.shift(mixture.count(), multiples, mixture.first_mean, mixture.eps);
  combine(vectors, mixture, multiples, -shift, &SweepImage::f, f);
  combine(vectors, mixture, multiples, shift, &SweepImage::g, g);
  vectors.copy(g, *mixture.start);
}

}  // namespace monge::cpu
