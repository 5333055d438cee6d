// Vectors of an operator: in and out, sums, products.
#include <cmath>
#include <limits>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class Vectors : public OperatorTest {
 protected:
  void SetUp() override {
    OperatorTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    entropic_ = make_operator(make_problem({kSize, 7, 2}));
  }
  VectorOperations const& vectors() const { return entropic_->vectors(); }

  std::unique_ptr<monge::Vector> of(VectorView view) const {
    auto result = vectors().make(Side::rows);
    vectors().read(view, *result);
    return result;
  }
  std::vector<double> values(monge::Vector const& vector) const {
    std::vector<double> result(kSize);
    vectors().write(vector, result);
    return result;
  }
  std::vector<double> random(std::uint64_t seed) const {
    Random random(seed);
    return gaussian_points(kSize, 1, random);
  }

  static constexpr std::int64_t kSize = 2500;  // Several blocks of any sum.

 private:
  std::unique_ptr<EntropicOperator> entropic_;
};
MONGE_FOR_EACH_DEVICE(Vectors);

TEST_P(Vectors, begin_as_zeros_of_their_side) {
  EXPECT_EQ(values(*vectors().make(Side::rows)), std::vector<double>(kSize, 0.0));
  std::vector<double> columns(7, 1.0);
  vectors().write(*vectors().make(Side::columns), columns);
  EXPECT_EQ(columns, std::vector<double>(7, 0.0));
}

TEST_P(Vectors, come_back_as_they_were_read) {
  for (DataType const type : {DataType::float32, DataType::float64}) {
    StoredVector const in(random(1), type, 3);
    auto const vector = of(in.view());
    EXPECT_EQ(values(*vector), in.values());
    StoredVector out(std::vector<double>(kSize), type, 2);
    vectors().write(*vector, out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    EXPECT_EQ(out.values(), in.values());
  }
}

TEST_P(Vectors, lie_side_by_side_once_concatenated) {
  std::vector<double> const a = random(1), b = random(2);
  auto const narrow = of(a), wide = vectors().make(Side::rows, 2), out = vectors().make(Side::rows, 4);
  std::vector<double> pairs(a);
  pairs.insert(pairs.end(), b.begin(), b.end());
  vectors().read(MatrixView(pairs.data(), kSize, 2), *wide);
  Term const terms[] = {{2, narrow.get()}, {-1, wide.get()}, {0.5, narrow.get()}};
  vectors().concatenate(terms, *out);
  std::vector<double> actual(4 * kSize);
  vectors().write(*out, MutableMatrixView(actual.data(), kSize, 4));
  for (std::size_t i = 0; i < a.size(); ++i) {
    double const expected[] = {2 * a[i], -pairs[2 * i], -pairs[2 * i + 1], 0.5 * a[i]};
    for (std::size_t p = 0; p < 4; ++p) ASSERT_EQ(actual[4 * i + p], expected[p]) << i << ", " << p;
  }
}

TEST_P(Vectors, exponentials_of_differences_are_zero_where_there_is_no_weight) {
  std::vector<double> const a = random(1), b = random(2);
  std::vector<double> weight = random(3);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = i % 7 == 0 ? 0 : std::abs(weight[i]);
  auto const out = of(random(4));
  vectors().exp_difference(*of(weight), *of(a), *of(b), 0.3, *out);
  std::vector<double> const actual = values(*out);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    Real const exponent = (Real(a[i]) - b[i]) / 0.3;
    Real const expected = Real(weight[i]) * std::exp(exponent);
    // Rounding of the exponent, of the exponential (2 units on a GPU) and of the product.
    ASSERT_NEAR(actual[i], static_cast<double>(expected),
                static_cast<double>(expected * (3 * std::abs(exponent) + 4)) * 0x1p-53)
        << i;
  }
}

TEST_P(Vectors, norms_are_those_of_all_elements_and_show_one_that_is_not_finite) {
  std::vector<double> a = random(1);
  a[kSize - 1] = -50;
  a[1234] = 60;
  VectorNorms const norms = vectors().norms(*of(a));
  Real l1 = 0, squares = 0;
  for (double const value : a) {
    l1 += std::abs(Real(value));
    squares += Real(value) * value;
  }
  EXPECT_NEAR(norms.l1, static_cast<double>(l1), static_cast<double>(l1) * kSize * 0x1p-53);
  EXPECT_NEAR(norms.l2, static_cast<double>(std::sqrt(squares)), norms.l2 * kSize * 0x1p-53);
  EXPECT_EQ(norms.least, -50);
  EXPECT_EQ(norms.largest, 60);
  for (double const bad : {std::nan(""), HUGE_VAL}) {
    a[77] = bad;
    EXPECT_FALSE(std::isfinite(vectors().norms(*of(a)).l1)) << bad;
  }
}

TEST_P(Vectors, combine_up_to_four_terms) {
  std::vector<double> const a = random(1), b = random(2), c = random(3), d = random(4);
  auto const u = of(a), v = of(b), w = of(c), z = of(d);
  auto const out = of(random(5));
  Term const terms[] = {{2, u.get()}, {-1, v.get(), w.get()}, {0.5, nullptr}, {3, z.get(), z.get()}};
  for (std::size_t count = 1; count <= kMostTerms; ++count) {
    vectors().combine(std::span(terms).first(count), *out);
    std::vector<double> const actual = values(*out);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      Real const parts[] = {2 * Real(a[i]), -Real(b[i]) * c[i], 0.5L, 3 * Real(d[i]) * d[i]};
      Real sum = 0, size = 0;
      for (std::size_t k = 0; k < count; ++k) {
        sum += parts[k];
        size += std::abs(parts[k]);
      }
      // Two roundings a term and one a sum.
      ASSERT_NEAR(actual[i], static_cast<double>(sum), static_cast<double>(size) * 6 * 0x1p-53) << i;
    }
  }
}

TEST_P(Vectors, combine_may_overwrite_a_term) {
  std::vector<double> const a = random(1), b = random(2);
  auto const u = of(a), v = of(b);
  Term const terms[] = {{1, v.get(), u.get()}, {-2, u.get()}};
  auto const expected = vectors().make(Side::rows);
  vectors().combine(terms, *expected);
  for (monge::Vector* const out : {u.get(), v.get()}) {
    vectors().read(a, *u);
    vectors().read(b, *v);
    vectors().combine(terms, *out);
    EXPECT_EQ(values(*out), values(*expected));
  }
}

// Those of denormal numbers may overflow.
TEST_P(Vectors, reciprocals_of_zeros_and_denormal_numbers_are_zeros) {
  constexpr double kLeast = std::numeric_limits<double>::min();
  std::vector<double> a = random(1);
  a[3] = a[kSize - 1] = 0;
  a[4] = kLeast / 2;
  a[5] = -5e-324;
  a[6] = -kLeast;
  auto const u = of(a);
  vectors().reciprocal(*u, *u);
  std::vector<double> const actual = values(*u);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(actual[i], std::abs(a[i]) < kLeast ? 0 : 1 / a[i]) << i;
}

TEST_P(Vectors, dots_are_sums_of_products) {
  std::vector<double> const a = random(1), b = random(2);
  auto const u = of(a), v = of(b), zeros = vectors().make(Side::rows);
  std::pair<monge::Vector const*, monge::Vector const*> const pairs[] = {
      {u.get(), v.get()}, {u.get(), u.get()}, {v.get(), zeros.get()}, {v.get(), u.get()}};
  std::vector<double> dots(kMostDots, 7.0);
  vectors().dots(pairs, dots);
  Real uv = 0, uu = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    uv += Real(a[i]) * b[i];
    uu += Real(a[i]) * a[i];
    size += std::abs(Real(a[i]) * b[i]);
  }
  // A rounding for each product, and for each level of a sum in blocks.
  double const unit = 0x1p-53 * (2 + std::log2(static_cast<double>(kSize)));
  EXPECT_NEAR(dots[0], static_cast<double>(uv), static_cast<double>(size) * unit);
  EXPECT_NEAR(dots[1], static_cast<double>(uu), static_cast<double>(uu) * unit);
  EXPECT_EQ(dots[2], 0);
  EXPECT_EQ(dots[3], dots[0]);
  std::vector<double> again(1);
  vectors().dots(std::span(pairs).first(1), again);
  EXPECT_EQ(again[0], dots[0]);
}

TEST_P(Vectors, dots_take_pairs_of_either_side) {
  auto const rows = of(random(1)), columns = vectors().make(Side::columns);
  vectors().read(std::vector<double>{1, -2, 3, 4, 0.5, 0, 7}, *columns);
  double const square = 1 + 4 + 9 + 16 + 0.25 + 49, of_rows = vectors().dot(*rows, *rows);
  std::pair<monge::Vector const*, monge::Vector const*> const ways[2][2] = {
      {{rows.get(), rows.get()}, {columns.get(), columns.get()}},
      {{columns.get(), columns.get()}, {rows.get(), rows.get()}}};
  std::vector<double> dots(2);
  vectors().dots(ways[0], dots);
  EXPECT_EQ(dots, (std::vector{of_rows, square}));
  vectors().dots(ways[1], dots);
  EXPECT_EQ(dots, (std::vector{square, of_rows}));
}

}  // namespace
}  // namespace monge::oracle
