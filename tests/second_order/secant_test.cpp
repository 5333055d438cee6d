// The rank-two correction of SPLR's matrix, by what it must be: BFGS's, or none.
#include "second_order/secant.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "oracle/problem.hpp"

namespace monge {
namespace {

constexpr double kUnit = 0x1p-53;

std::vector<double> random_vector(std::size_t size, oracle::Random& random) {
  std::vector<double> values(size);
  for (double& value : values) value = random.uniform(-1, 1);
  return values;
}

/// B^-1 is diagonal, from 1 to 2.
void solve(std::vector<double>& z) {
  for (std::size_t k = 0; k < z.size(); ++k) z[k] *= 1 + static_cast<double>(k) / static_cast<double>(z.size());
}

/// Some s, and y = A s with A positive definite: a diagonal from 0.5 to 1 and a rank of one.
struct Step {
  std::vector<double> s, y;
};
Step make_step(std::size_t size, oracle::Random& random) {
  std::vector<double> const s = random_vector(size, random), u = random_vector(size, random);
  std::vector<double> y = s;
  for (std::size_t k = 0; k < size; ++k) y[k] *= 0.5 + 0.5 * static_cast<double>(k) / static_cast<double>(size);
  add(dot(u, s), u, y);
  return {s, y};
}

TEST(Secant, corrects_the_inverse_along_the_step_and_leaves_what_does_not_meet_it) {
  oracle::Random random(1);
  for (std::size_t const size : {1, 2, 7, 50}) {
    SCOPED_TRACE(size);
    auto const& [s, y] = make_step(size, random);
    std::optional<Secant> const secant = Secant::of(s, y, 1e-6);
    ASSERT_TRUE(secant);
    std::vector<double> z = y;
    secant->apply(solve, z);
    // Sums of `size` products of numbers up to 2 |y|, divided by <y, s>.
    double const condition = dot(y, y) / dot(y, s), rounding = 16 * kUnit * static_cast<double>(size) * condition * 2;
    for (std::size_t k = 0; k < size; ++k) EXPECT_NEAR(z[k], s[k], rounding * std::sqrt(dot(s, s)));
    std::vector<double> const v = random_vector(size, random), w = random_vector(size, random);
    std::vector<double> of_v = v, of_w = w;
    secant->apply(solve, of_v);
    secant->apply(solve, of_w);
    double const scale = 2 * (1 + condition) * (1 + condition) * std::sqrt(dot(v, v) * dot(w, w));
    EXPECT_NEAR(dot(of_v, w), dot(v, of_w), rounding * scale) << "symmetric";
    EXPECT_GT(dot(of_v, v), 0) << "positive";
    // Where <s, z> = 0 and <y, B^-1 z> = 0 it is the inverse of B.
    if (size < 3) continue;
    std::vector<double> by = y, plain = v;
    solve(by);
    double const ss = dot(s, s), bb = dot(by, by), sb = dot(s, by), determinant = ss * bb - sb * sb;
    double const vs = dot(v, s), vb = dot(v, by);
    add(-(vs * bb - vb * sb) / determinant, s, plain);
    add(-(vb * ss - vs * sb) / determinant, by, plain);
    std::vector<double> corrected = plain;
    secant->apply(solve, corrected);
    solve(plain);
    for (std::size_t k = 0; k < size; ++k) EXPECT_NEAR(corrected[k], plain[k], 1e-11);
  }
}

TEST(Secant, is_none_where_the_curvature_is_not_positive_or_is_rounding) {
  oracle::Random random(2);
  auto const& [s, y] = make_step(20, random);
  double const ratio = dot(y, s) / dot(y, y);
  EXPECT_TRUE(Secant::of(s, y, 0.99 * ratio));
  EXPECT_FALSE(Secant::of(s, y, 1.01 * ratio));
  std::vector<double> against = y;
  for (double& value : against) value = -value;
  EXPECT_FALSE(Secant::of(s, against, 0));
  EXPECT_FALSE(Secant::of(s, std::vector<double>(20, 0), 0)) << "the gradient has not changed";
  EXPECT_FALSE(Secant::of(s, std::vector<double>(20, std::numeric_limits<double>::quiet_NaN()), 0));
  std::vector<double> shrunk = s;
  for (double& value : shrunk) value *= 1e-9;
  EXPECT_FALSE(Secant::of(shrunk, y, 1e-6));
}

}  // namespace
}  // namespace monge
