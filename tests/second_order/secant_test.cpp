// The rank-two correction of SPLR's matrix, by what it must be: BFGS's, or none.
#include "second_order/secant.hpp"
#include "core/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "cpu/runtime/vectors.hpp"
#include "oracle/problem.hpp"

namespace monge {
namespace {

std::vector<double> random_vector(std::size_t size, oracle::Random& random) {
  std::vector<double> values(size);
  for (double& value : values) value = random.uniform(-1, 1);
  return values;
}

void add(double factor, std::vector<double> const& from, std::vector<double>& to) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += factor * from[k];
}

double dot(std::vector<double> const& x, std::vector<double> const& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

/// B^-1 is diagonal, from 1 to 2.
void solve(std::vector<double>& z) {
  for (std::size_t k = 0; k < z.size(); ++k) z[k] *= 1 + static_cast<double>(k) / static_cast<double>(z.size());
}

/// Converts numbers to a pair of vectors and back. The rows have the first half of the numbers.
class Space {
 public:
  explicit Space(std::size_t size)
      : rows_(static_cast<std::int64_t>(size / 2)),
        columns_(static_cast<std::int64_t>(size) - rows_),
        vectors_(rows_, columns_),
        pairs_(vectors_) {}

  VectorPair pair(std::vector<double> const& values) const {
    VectorPair result = pairs_.make();
    vectors_.read(VectorView(values.data(), rows_), *result.of_rows);
    vectors_.read(VectorView(values.data() + rows_, columns_), *result.of_columns);
    return result;
  }
  std::vector<double> values(VectorPair const& pair) const {
    std::vector<double> result(static_cast<std::size_t>(rows_ + columns_));
    vectors_.write(*pair.of_rows, MutableVectorView(result.data(), rows_));
    vectors_.write(*pair.of_columns, MutableVectorView(result.data() + rows_, columns_));
    return result;
  }
  std::optional<Secant> secant(std::vector<double> const& s, std::vector<double> const& y, double least) const {
    return Secant::of(pairs_, pair(s), pair(y), least);
  }
  /// z becomes B+^-1 z.
  void apply(Secant const& secant, std::vector<double>& z) const {
    VectorPair const vectors = pair(z);
    secant.apply(
        [&](VectorPair const& in) {
          std::vector<double> solved = values(in);
          solve(solved);
          VectorPair const back = pair(solved);
          pairs_.combine({{1, &back}}, in);
        },
        vectors);
    z = values(vectors);
  }

 private:
  std::int64_t rows_, columns_;
  cpu::HostVectorOperations vectors_;
  PairOperations pairs_;
};

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
  for (std::size_t const size : {2, 7, 50}) {
    SCOPED_TRACE(size);
    auto const& [s, y] = make_step(size, random);
    Space const space(size);
    std::optional<Secant> const secant = space.secant(s, y, 1e-6);
    ASSERT_TRUE(secant);
    std::vector<double> z = y;
    space.apply(*secant, z);
    // Sums of `size` products of numbers up to 2 |y|, divided by <y, s>.
    double const condition = dot(y, y) / dot(y, s),
                 rounding = 16 * kUnitRoundoff * static_cast<double>(size) * condition * 2;
    for (std::size_t k = 0; k < size; ++k) EXPECT_NEAR(z[k], s[k], rounding * std::sqrt(dot(s, s)));
    std::vector<double> const v = random_vector(size, random), w = random_vector(size, random);
    std::vector<double> of_v = v, of_w = w;
    space.apply(*secant, of_v);
    space.apply(*secant, of_w);
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
    space.apply(*secant, corrected);
    solve(plain);
    for (std::size_t k = 0; k < size; ++k) EXPECT_NEAR(corrected[k], plain[k], 1e-11);
  }
}

TEST(Secant, is_none_where_the_curvature_is_not_positive_or_is_rounding) {
  oracle::Random random(2);
  auto const& [s, y] = make_step(20, random);
  Space const space(20);
  double const ratio = dot(y, s) / dot(y, y);
  EXPECT_TRUE(space.secant(s, y, 0.99 * ratio));
  EXPECT_FALSE(space.secant(s, y, 1.01 * ratio));
  std::vector<double> against = y;
  for (double& value : against) value = -value;
  EXPECT_FALSE(space.secant(s, against, 0));
  EXPECT_FALSE(space.secant(s, std::vector<double>(20, 0), 0)) << "the gradient has not changed";
  EXPECT_FALSE(space.secant(s, std::vector<double>(20, std::numeric_limits<double>::quiet_NaN()), 0));
  std::vector<double> shrunk = s;
  for (double& value : shrunk) value *= 1e-9;
  EXPECT_FALSE(space.secant(shrunk, y, 1e-6));
}

}  // namespace
}  // namespace monge
