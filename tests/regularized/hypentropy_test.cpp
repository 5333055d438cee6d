// The prox of hypentropy in the splitting pass of the CPU beside its equation, of weights, widths and entries of any
// size.
//
// Tolerance. With x = beta sinh(y) and kappa = beta / shrink, rounding v and each of the two terms by u moves y by u v
// / (kappa cosh(y) + h), and x, relatively, by that over tanh(y): at most u (1 + y), as v = kappa sinh(y) + h y.
// Rounding y does as much, and below the normal numbers it moves x by beta times the least number. Weights and widths
// of the oracle are those of T.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/regularized/splitting_pass.hpp"
#include "cpu/runtime/memory.hpp"
#include "regularized/regularized_input.hpp"

namespace monge::cpu {
namespace {

using Real = long double;

/// y of kappa sinh(y) + h y = v.
Real root_of(Real kappa, Real h, Real v) {
  Real low = 0, high = std::min(v / h, std::asinh(v / kappa));
  for (int k = 0; k < 200; ++k) {
    Real const middle = (low + high) / 2;
    (kappa * std::sinh(middle) + h * middle < v ? low : high) = middle;
  }
  return high;
}

/// prox of each of `v`, by a pass over them as one column of no costs.
template <class T>
std::vector<T> passed(std::vector<T> const& v, EntryProx<T> const& prox) {
  std::int64_t const rows = std::ssize(v), room = padded_to_vectors<T>(rows);
  AlignedArray<T> x = aligned_array<T>(room), zeros = aligned_array<T>(room), sums = aligned_array<T>(room);
  std::fill_n(x.get(), room, T(0));
  std::fill_n(zeros.get(), room, T(0));
  std::copy(v.begin(), v.end(), x.get());
  T const psi = 0;
  std::vector<std::int64_t> const group_begin{0, rows};
  double sum = 0;
  pass_over_columns<T>({PassKind::plain, x.get(), zeros.get(), room, rows, 0, zeros.get(), &psi, prox, group_begin, {}},
                       0, 1, sums.get(), &sum, nullptr);
  return {x.get(), x.get() + rows};
}

template <class T>
class HypentropyProx : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(HypentropyProx, Types);

TYPED_TEST(HypentropyProx, SolvesItsEquation) {
  using T = TypeParam;
  Real const unit = std::numeric_limits<T>::epsilon() / 2, smallest = std::numeric_limits<T>::min();
  Real const least = std::numeric_limits<T>::denorm_min();
  // Each with its neighbours, and in a vector of its own scale as in one of all.
  std::vector<T> v;
  for (int e = -60; e <= 12; ++e) {
    for (double const factor : {1.0, 1.3, 1.9}) v.push_back(static_cast<T>(std::ldexp(factor, e / 2)));
    if (e % 3 == 0) v.push_back(0);
  }
  for (int e = -60; e <= 12; e += 6) v.push_back(static_cast<T>(std::ldexp(1.0, e)));
  Bounds const widths = widths_of(sizeof(T) == 4 ? Precision::float32 : Precision::float64);
  for (double const width : {widths.least, 1e-12, 1e-3, 0.01, 1.0, 1e4, widths.most}) {
    for (double const weight : {1e-12, 1e-5, 1e-3, 0.3, 10.0, 1e4}) {
      for (double const shrink : {1.0, 0.2, 1e-6}) {
        SCOPED_TRACE(testing::Message() << "width " << width << ", weight " << weight << ", shrink " << shrink);
        EntryProx<T> const prox{static_cast<T>(shrink), static_cast<T>(weight), static_cast<T>(width)};
        std::vector<T> const x = passed(v, prox);
        for (std::size_t k = 0; k < v.size(); ++k) {
          if (v[k] == 0) {
            EXPECT_EQ(x[k], 0);
            continue;
          }
          Real const y = root_of(Real(prox.width) / Real(prox.shrink), prox.hypentropy, v[k]);
          Real const expected = Real(prox.width) * std::sinh(y);
          Real const allowed = 8 * (unit * (1 + y) * expected + least * Real(prox.width)) + smallest;
          ASSERT_LE(std::abs(Real(x[k]) - expected), allowed) << "v " << v[k];
        }
      }
    }
  }
}

}  // namespace
}  // namespace monge::cpu
