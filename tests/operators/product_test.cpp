// The plan as a linear operator, against the oracle.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

constexpr std::int64_t kWidths[] = {1, 2, 3, 64, 65, 130};
constexpr std::int64_t kInner[] = {1, 5, 70};

char const* text(Scaling scaling) {
  return scaling == Scaling::plan ? "P V" : "shares V";
}

class Product : public OperatorTest {
 protected:
  /// Calls check(test, plan, p, k) for every recipe with a width and an inner width, with the memory to keep what it
  /// may keep, and without.
  template <class Check>
  void for_each_case(Check const& check) {
    int index = 0;
    for (Recipe const& recipe : recipes()) {
      std::int64_t const p = kWidths[index % 6], k = kInner[(index + index / 3) % 3];
      double const cache_bytes = index % 2 == 0 ? 1e9 : 0;
      ++index;
      SCOPED_TRACE(testing::Message() << "p " << p << ", k " << k << ", cache " << cache_bytes << ", " << recipe);
      Case const test = make_case(recipe);
      auto const plan = make_plan(test, cache_bytes);
      check(test, *plan, p, k);
    }
  }

  Stored gaussian(Case const& test, std::int64_t rows, std::int64_t columns, Random& random,
                  std::int64_t padding = 2) const {
    Stored const& given = test.problem.has_points() ? test.problem.x : test.problem.cost;
    DataType const type = given.view().type();
    return Stored(gaussian_points(rows, columns, random), rows, columns, type, padding);
  }

  /// Arithmetic of <l_i, r_j>.
  Arithmetic factors(std::int64_t k) const { return oracle::arithmetic({GetParam().device}, precision(), k); }

  static std::vector<double> multiply(PlanOperator& plan, Side side, Scaling scaling, MatrixView v) {
    Stored out(std::vector<double>(plan.size(side) * v.columns()), plan.size(side), v.columns(), DataType::float64, 2);
    plan.multiply(side, scaling, v, out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    return out.values();
  }

  static std::vector<double> multiply_points(PlanOperator& plan, Side side, Scaling scaling, std::int64_t d) {
    Stored out(std::vector<double>(plan.size(side) * d), plan.size(side), d, DataType::float64, 1);
    plan.points().multiply_points(side, scaling, out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    return out.values();
  }

  static std::vector<double> multiply_hadamard(PlanOperator& plan, Side side, Stored const& l, Stored const& r,
                                               Stored const& v) {
    Stored out(std::vector<double>(plan.size(side) * v.columns()), plan.size(side), v.columns(), DataType::float64, 3);
    plan.multiply_hadamard(side, l.view(), r.view(), v.view(), out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    return out.values();
  }

  static std::unique_ptr<monge::Vector> vector(PlanOperator const& plan, Side side, std::span<double const> values) {
    auto result = plan.vectors().make(side);
    plan.vectors().read(values, *result);
    return result;
  }

  static std::vector<double> values(PlanOperator const& plan, Side side, monge::Vector const& vector) {
    std::vector<double> result(plan.size(side));
    plan.vectors().write(vector, result);
    return result;
  }

  static std::vector<double> multiply(PlanOperator& plan, Side side, std::span<double const> in) {
    auto const out = plan.vectors().make(side);
    plan.multiply(side, *vector(plan, other(side), in), *out);
    return values(plan, side, *out);
  }

  static std::vector<double> multiply_gram(PlanOperator& plan, Side side, std::span<double const> w,
                                           std::span<double const> in) {
    auto const out = plan.vectors().make(side);
    plan.multiply_gram(side, *vector(plan, other(side), w), *vector(plan, side, in), *out);
    return values(plan, side, *out);
  }
};
MONGE_FOR_EACH_COST_TARGET(Product);
MONGE_FOR_EACH_ORDERED(Product);
class ProductOfPoints : public Product {};
MONGE_FOR_EACH_POINT_TARGET(ProductOfPoints);
MONGE_FOR_EACH_ORDERED(ProductOfPoints);

TEST_P(Product, of_values_equals_the_oracle) {
  for_each_case([&](Case const& test, PlanOperator& plan, std::int64_t p, std::int64_t) {
    Random random(5);
    for (Side const side : {Side::rows, Side::columns}) {
      Stored const v = gaussian(test, plan.size(other(side)), p, random);
      for (Scaling const scaling : {Scaling::shares, Scaling::plan}) {
        bool const shares = scaling == Scaling::shares;
        Vector const expected = test.dense.average(side, test.eps, test.potentials, v.values(), p, shares);
        Vector const allowed = test.tolerance.product(test.dense, side, test.potentials, v.values(), p, shares);
        std::vector<double> const first = multiply(plan, side, scaling, v.view());
        expect_close(text(scaling), first, expected, allowed);
        EXPECT_EQ(multiply(plan, side, scaling, v.view()), first) << "of the same call";
      }
    }
  });
}

TEST_P(Product, of_a_vector_equals_the_oracle) {
  for_each_case([&](Case const& test, PlanOperator& plan, std::int64_t, std::int64_t) {
    Random random(6);
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> const v = gaussian_points(plan.size(other(side)), 1, random);
      std::vector<double> const first = multiply(plan, side, v);
      expect_close("P v", first, test.dense.average(side, test.eps, test.potentials, v, 1, false),
                   test.tolerance.product(test.dense, side, test.potentials, v, 1, false));
      EXPECT_EQ(multiply(plan, side, v), first);
    }
  });
}

// Arithmetic short of float64 holds neither 1e-60 nor 1e60: vectors of solvers come in any size.
TEST_P(Product, of_any_size_of_vector) {
  Case const test = make_case({120, 90, 3, Weights::with_zeros});
  auto const plan = make_plan(test);
  Random random(7);
  std::vector<double> const v = gaussian_points(90, 1, random);
  Vector const expected = test.dense.average(Side::rows, test.eps, test.potentials, v, 1, false);
  Vector const allowed = test.tolerance.product(test.dense, Side::rows, test.potentials, v, 1, false);
  for (double const size : {1e-60, 1e60}) {
    std::vector<double> large = v;
    for (double& value : large) value *= size;
    Vector target = expected, error = allowed;
    for (Real& value : target) value *= size;
    for (Real& value : error) value *= size;
    expect_close("P v", multiply(*plan, Side::rows, large), target, error);
    std::vector<double> wide(180);
    for (std::size_t k = 0; k < wide.size(); ++k) wide[k] = k % 2 == 0 ? large[k / 2] : v[k / 2];
    std::vector<double> const product = multiply(*plan, Side::rows, Scaling::plan, MatrixView(wide.data(), 90, 2));
    for (std::int64_t i = 0; i < 120; ++i) {
      EXPECT_NEAR(product[2 * i], target[i], static_cast<double>(error[i])) << i;
      EXPECT_NEAR(product[2 * i + 1], expected[i], static_cast<double>(allowed[i])) << i;
    }
  }
}

TEST_P(Product, of_zeros_is_zero) {
  Case const test = make_case({50, 60, 3});
  auto const plan = make_plan(test);
  std::vector<double> const zeros(60, 0.0), ones(50, 1.0), nothing(50, 0.0);
  EXPECT_EQ(multiply(*plan, Side::rows, zeros), nothing);
  EXPECT_EQ(multiply_gram(*plan, Side::columns, ones, zeros), zeros);
  EXPECT_EQ(multiply_gram(*plan, Side::columns, nothing, std::vector<double>(60, 1.0)), zeros);
}

TEST_P(Product, of_ones_is_the_marginal) {
  Case const test = make_case({50, 60, 3, Weights::with_zeros});
  auto const plan = make_plan(test);
  std::vector<double> const ones(60, 1.0);
  std::vector<double> const row = values(*plan, Side::rows, plan->marginal(Side::rows));
  std::vector<double> const product = multiply(*plan, Side::rows, ones);
  Vector const relative = test.tolerance.plan(Side::rows, test.potentials);
  std::vector<double> const shares = multiply(*plan, Side::rows, Scaling::shares, MatrixView(ones.data(), 60, 1));
  for (std::size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(product[i], row[i], static_cast<double>(relative[i] * row[i]));
    EXPECT_NEAR(shares[i], 1, static_cast<double>(relative[i]));
    if (test.problem.a[i] == 0) {
      EXPECT_EQ(product[i], 0);
    }
  }
}

// The digits that matter are those of the cloud, however far away it lies: the average is the centre, which is known to
// float64, and an average of y - centre.
TEST_P(ProductOfPoints, of_the_points_loses_no_digits_to_their_place) {
  for_each_case([&](Case const& test, PlanOperator& plan, std::int64_t, std::int64_t) {
    std::int64_t const d = test.problem.d();
    for (Side const side : {Side::rows, Side::columns}) {
      Side const far = other(side);
      std::vector<double> const points = (far == Side::rows ? test.problem.x : test.problem.y).values();
      double const radius = test.tolerance.magnitudes().radius(far);
      std::vector<double> const sizes(points.size(), radius);
      Vector allowed = test.tolerance.product(test.dense, side, test.potentials, sizes, d, true);
      Vector const expected = test.dense.average(side, test.eps, test.potentials, points, d, true);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        allowed[k] += arithmetic(d).unit * radius + 0x1p-51 * std::abs(expected[k]);
      }
      expect_close("map", multiply_points(plan, side, Scaling::shares, d), expected, allowed);
      expect_close("P y", multiply_points(plan, side, Scaling::plan, d),
                   test.dense.average(side, test.eps, test.potentials, points, d, false),
                   test.tolerance.product(test.dense, side, test.potentials, points, d, false));
    }
  });
}

TEST_P(Product, weighted_entry_by_entry_equals_the_oracle) {
  for_each_case([&](Case const& test, PlanOperator& plan, std::int64_t p, std::int64_t k) {
    Random random(8);
    for (Side const side : {Side::rows, Side::columns}) {
      Stored const l = gaussian(test, plan.size(side), k, random),
                   r = gaussian(test, plan.size(other(side)), k, random, 0);
      Stored const v = gaussian(test, plan.size(other(side)), p, random, 1);
      std::vector<double> const first = multiply_hadamard(plan, side, l, r, v);
      expect_close("(P o L R^T) V", first,
                   test.dense.hadamard(side, test.eps, test.potentials, l.values(), r.values(), k, v.values(), p),
                   test.tolerance.hadamard(test.dense, side, test.potentials, l.values(), r.values(), k, v.values(), p,
                                           factors(k)));
      EXPECT_EQ(multiply_hadamard(plan, side, l, r, v), first);
    }
  });
}

TEST_P(Product, of_product_and_transpose_equals_the_oracle) {
  for_each_case([&](Case const& test, PlanOperator& plan, std::int64_t, std::int64_t) {
    Random random(9);
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> const v = gaussian_points(plan.size(side), 1, random);
      // As conjugate gradients have it, with signs: 1 / marginal, or 0.
      std::vector<double> w = narrow(test.dense.marginal(other(side), test.eps, test.potentials));
      for (double& value : w) value = value > 0 ? random.uniform(-1, 1) / value : 0;
      Vector inner = test.dense.average(other(side), test.eps, test.potentials, v, 1, false);
      for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= w[i];
      std::vector<double> const first = multiply_gram(plan, side, w, v);
      expect_close("P^T diag(w) P v", first,
                   test.dense.average(side, test.eps, test.potentials, narrow(inner), 1, false),
                   test.tolerance.gram(test.dense, side, test.potentials, w, v));
      EXPECT_EQ(multiply_gram(plan, side, w, v), first);
    }
  });
}

/// A vector for products onto the other side, of a problem with points of little mass: what multiplies the tiny shares
/// of these points is as large as the reciprocal of their mass, or 0.
enum class Spread {
  reciprocal,   // signs / mass everywhere
  mixed,        // the same at points of little mass, numbers of size 1 elsewhere
  alone,        // the same at one point of little mass, 0 elsewhere
  at_ordinary,  // numbers of size 1 at points that are not of little mass, 0 there
};

std::vector<double> spread_vector(Spread kind, Vector const& masses, Random& random) {
  Real total = 0;
  for (Real const mass : masses) total += mass / masses.size();
  std::vector<double> v(masses.size(), 0.0);
  bool first = true;
  for (std::size_t j = 0; j < v.size(); ++j) {
    bool const is_tiny = masses[j] < 1e-6L * total;
    // Reciprocals of denormal numbers overflow.
    double const large =
        random.uniform(0.5, 1.5) * (j % 3 == 0 ? -1 : 1) / std::max(static_cast<double>(masses[j]), 1e-300);
    double const usual = random.normal();
    switch (kind) {
      case Spread::reciprocal:
        v[j] = large;
        break;
      case Spread::mixed:
        v[j] = is_tiny ? large : usual;
        break;
      case Spread::alone:
        if (is_tiny && masses[j] > 0 && std::exchange(first, false)) v[j] = large;
        break;
      case Spread::at_ordinary:
        v[j] = is_tiny ? 0 : usual;
        break;
    }
  }
  return v;
}

/// Some units in the last place of a denormal number.
constexpr double kDenormal = 1e-322;

// The axis of magnitudes: P^T (1 / r) and the like need shares that float32 does not hold.
TEST_P(Product, of_points_of_little_mass_equals_the_oracle) {
  for (double const least : {1.0, 1e-8, 1e-20, 1e-40, 1e-100, 1e-310, 0.0}) {
    Recipe recipe{40, 33, 3, Weights::uniform, Place::origin, 0.2};
    recipe.costs = GetParam().costs;
    Problem problem = oracle::make_problem(recipe);
    for (std::size_t const i : {0, 5, 11}) problem.a[i] *= least;
    for (std::size_t const j : {3, 30}) problem.b[j] *= least;
    Case const test(problem, recipe, arithmetic(recipe.d));
    auto const plan = make_plan(test);
    Random random(12);
    Vector const expected_entries = test.dense.plan(test.eps, test.potentials);
    for (Side const side : kSides) {
      Vector const masses = test.dense.marginal(other(side), test.eps, test.potentials),
                   own = test.dense.marginal(side, test.eps, test.potentials);
      std::int64_t const count = plan->size(side), columns = plan->size(other(side));
      std::vector<double> entries(static_cast<std::size_t>(count * columns));
      plan->entries().all(side, MutableMatrixView(entries.data(), count, columns));
      Vector const relative = test.tolerance.plan(side, test.potentials);
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          Real const entry = expected_entries[side == Side::rows ? i * columns + j : j * count + i];
          // Shares below the range of the arithmetic may be lost, unless a column has little mass.
          Real const lost = least < 1e-18 ? 0 : own[i] * (is_float64() ? 0x1p-900L : 0x1p-124L);
          EXPECT_NEAR(entries[i * columns + j], static_cast<double>(entry),
                      static_cast<double>(2 * relative[i] * entry + lost) + kDenormal)
              << "least " << least << ", entry " << i << ", " << j;
        }
      }
      std::int64_t const size = plan->size(side), far = plan->size(other(side));
      for (Spread const kind : {Spread::reciprocal, Spread::mixed, Spread::alone, Spread::at_ordinary}) {
        SCOPED_TRACE(testing::Message() << "least " << least << ", onto " << (side == Side::rows ? "rows" : "columns")
                                        << ", vector " << static_cast<int>(kind));
        std::vector<double> const v = spread_vector(kind, masses, random);
        // |v_j| joins the logits, whose rounding grows with it.
        Real logarithm = 0;
        for (double const value : v)
          logarithm = std::max<Real>(logarithm, value == 0 ? 0 : std::abs(std::log(std::abs(value))));
        std::vector<double> magnitudes = v;
        for (double& value : magnitudes) value = std::abs(value);
        // Shares below the range of the arithmetic are lost where v is less concentrated than the products' reach: in
        // float32 2^60 for passes, whose shares are held to 2^-126, and 2^20 for entries on CUDA, held to 2^-40.
        Real mass = 0, met = 0;
        for (std::size_t j = 0; j < v.size(); ++j) {
          mass += masses[j];
          met += masses[j] * magnitudes[j];
        }
        bool const halves = context().device().type == DeviceType::cuda && !is_float64();
        Real const lost = met / mass * (halves ? 0x1p-18L : 0x1p-58L);
        auto const with_range = [&](Vector allowed, Vector const& sizes, auto const& total) {
          for (std::size_t k = 0; k < allowed.size(); ++k)
            allowed[k] += 4 * arithmetic(recipe.d).unit * logarithm * sizes[k] + lost * total(k) + kDenormal;
          return allowed;
        };
        for (Scaling const scaling : {Scaling::shares, Scaling::plan}) {
          bool const shares = scaling == Scaling::shares;
          Vector const sizes = test.dense.average(side, test.eps, test.potentials, magnitudes, 1, shares),
                       expected = test.dense.average(side, test.eps, test.potentials, v, 1, shares),
                       allowed = with_range(test.tolerance.product(test.dense, side, test.potentials, v, 1, shares),
                                            sizes, [&](std::size_t i) { return shares ? Real(1) : own[i]; });
          expect_close(text(scaling), multiply(*plan, side, scaling, MatrixView(v.data(), far, 1)), expected, allowed);
          // Beside ordinary columns.
          std::vector<double> wide(static_cast<std::size_t>(3 * far));
          for (std::int64_t j = 0; j < far; ++j) wide[3 * j] = 1, wide[3 * j + 1] = v[j], wide[3 * j + 2] = 0.5;
          std::vector<double> const found = multiply(*plan, side, scaling, MatrixView(wide.data(), far, 3));
          std::vector<double> column(static_cast<std::size_t>(size));
          for (std::int64_t i = 0; i < size; ++i) {
            column[i] = found[3 * i + 1];
            EXPECT_NEAR(found[3 * i], 2 * found[3 * i + 2], kDenormal);
          }
          expect_close("a column", column, expected, allowed);
        }
        for (bool const is_left : {false, true}) {
          // Rows of L, or of R, of very different sizes.
          std::vector<double> l = gaussian_points(size, 2, random), r = gaussian_points(far, 2, random);
          for (std::int64_t i = 0; is_left && i < size; ++i) l[2 * i] /= std::max(static_cast<double>(own[i]), 1e-150);
          for (std::int64_t j = 0; !is_left && j < far; ++j) r[2 * j + 1] *= std::clamp(v[j], -1e150, 1e150);
          std::vector<double> const ones(static_cast<std::size_t>(far), 1.0);
          Vector allowed = test.tolerance.hadamard(test.dense, side, test.potentials, l, r, 2, ones, 1, factors(2));
          for (Real& error : allowed) {
            error *= 1 + 4 * arithmetic(recipe.d).unit * logarithm / test.tolerance.sum_error(side);
            error += kDenormal * (is_left ? 1e151 : 1);
          }
          for (std::int64_t i = 0; i < size; ++i) {
            Real const length = std::hypot(l[2 * i], l[2 * i + 1]);
            allowed[i] += length * own[i] * (is_left ? (halves ? 0x1p-18L : 0x1p-58L) : lost);
          }
          Stored const left(l, size, 2), right(r, far, 2), values(ones, far, 1);
          expect_close("(P o L R^T) 1", multiply_hadamard(*plan, side, left, right, values),
                       test.dense.hadamard(side, test.eps, test.potentials, l, r, 2, ones, 1), allowed);
        }
        // The other side: `in` of a Gram product is of the side that it is onto.
        std::vector<double> w(own.size());
        for (std::size_t i = 0; i < w.size(); ++i) w[i] = own[i] < 1e-300L ? 0 : static_cast<double>(1 / own[i]);
        Vector inner = test.dense.average(side, test.eps, test.potentials, v, 1, false);
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= w[i];
        Vector inner_size = test.dense.average(side, test.eps, test.potentials, magnitudes, 1, false);
        for (std::size_t i = 0; i < inner.size(); ++i) inner_size[i] *= w[i];
        expect_close(
            "P^T diag(w) P v", multiply_gram(*plan, other(side), w, v),
            test.dense.average(other(side), test.eps, test.potentials, narrow(inner), 1, false),
            with_range(test.tolerance.gram(test.dense, other(side), test.potentials, w, v),
                       test.dense.average(other(side), test.eps, test.potentials, narrow(inner_size), 1, false),
                       [&](std::size_t j) { return masses[j]; }));
      }
    }
  }
}

/// The soft c-transforms of both potentials, as a symmetric sweep gives them: it leaves (f + f+) / 2. Each is off by
/// the rounding of a potential, a few times. Where there is no weight they are what the sweep found there.
std::array<std::unique_ptr<monge::Vector>, 2> transforms_from_sweep(EntropicOperator& entropic, double eps) {
  VectorOperations const& vectors = entropic.vectors();
  std::array<std::unique_ptr<monge::Vector>, 2> result;
  for (Side const side : {Side::rows, Side::columns}) {
    Term const old{-1, &std::as_const(entropic).potential(side)};
    auto& transform = result[side == Side::rows ? 0 : 1];
    transform = vectors.make(side);
    vectors.combine({&old, 1}, *transform);
  }
  entropic.sweep({eps, true}, 1);
  for (Side const side : {Side::rows, Side::columns}) {
    auto& transform = result[side == Side::rows ? 0 : 1];
    std::array const terms{Term{1, transform.get()}, Term{2, &std::as_const(entropic).potential(side)}};
    vectors.combine(terms, *transform);
  }
  return result;
}

TEST_P(Product, with_transforms_from_a_sweep_equals_the_oracle) {
  int index = 0;
  for (Recipe const& recipe : recipes()) {
    double const cache_bytes = index++ % 2 == 0 ? 1e9 : 0;
    SCOPED_TRACE(testing::Message() << "cache " << cache_bytes << ", " << recipe);
    Case const test = make_case(recipe);
    auto const entropic = make_operator(test, cache_bytes);
    auto const plan = entropic->plan(test.eps);
    auto const [f_plus, g_plus] = transforms_from_sweep(*entropic, test.eps);
    plan->set_transforms(*f_plus, *g_plus);
    Random random(13);
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> const v = gaussian_points(plan->size(other(side)), 3, random);
      expect_close("P V", multiply(*plan, side, Scaling::plan, MatrixView(v.data(), plan->size(other(side)), 3)),
                   test.dense.average(side, test.eps, test.potentials, v, 3, false),
                   test.tolerance.product(test.dense, side, test.potentials, v, 3, false));
      Vector const expected = test.dense.marginal(side, test.eps, test.potentials);
      Vector allowed = test.tolerance.plan(side, test.potentials);
      for (std::size_t i = 0; i < allowed.size(); ++i) allowed[i] *= expected[i];
      expect_close("P 1", values(*plan, side, plan->marginal(side)), expected, allowed);
    }
  }
}

// No pass looks for what was given: a transform that is lower by an eighth of eps moves the marginal by exp(1 / 8), and
// nothing else: products of the plan do not depend on it, nor on those of points of no weight.
TEST_P(Product, with_transforms_takes_them_for_known) {
  for (std::int64_t const d : {3, 40}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    Case const test = make_case({50, 260, d, Weights::with_zeros});
    auto const entropic = make_operator(test);
    auto const plan = entropic->plan(test.eps), early = entropic->plan(test.eps);
    std::vector<double> const row = values(*plan, Side::rows, plan->marginal(Side::rows));
    auto const transforms = transforms_from_sweep(*entropic, test.eps);
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> by(plan->size(side));
      for (std::size_t i = 0; i < by.size(); ++i) {
        double const stray = i % 2 == 0 ? 1e4 : -1e4;
        by[i] = test.eps * (test.dense.weights(side)[i] == 0 ? stray : side == Side::rows ? -1.0 / 8 : 0.0);
      }
      monge::Vector& transform = *transforms[side == Side::rows ? 0 : 1];
      auto const difference = vector(*plan, side, by);
      std::array const moved{Term{1, &transform}, Term{1, difference.get()}};
      plan->vectors().combine(moved, transform);
    }
    Random random(14);
    std::vector<double> const v = gaussian_points(260, 1, random), ones(50, 1.0);
    Vector const relative = test.tolerance.plan(Side::rows, test.potentials);
    Vector const once = test.dense.average(Side::rows, test.eps, test.potentials, v, 1, false);
    // Before the first product and after it.
    for (PlanOperator* const known : {early.get(), plan.get()}) {
      known->set_transforms(*transforms[0], *transforms[1]);
      std::vector<double> const actual = values(*known, Side::rows, known->marginal(Side::rows));
      for (std::size_t i = 0; i < row.size(); ++i) {
        double const expected = row[i] * std::exp(1.0 / 8);
        EXPECT_NEAR(actual[i], expected, static_cast<double>(2 * relative[i]) * expected) << i;
      }
      // Entries in memory are normalised by their own sums, and take no transform but for the marginal.
      if (test.problem.cost_function == CostFunction::euclidean || test.problem.cost_function == CostFunction::p_norm)
        continue;
      expect_close("P v", multiply(*known, Side::rows, v), once,
                   test.tolerance.product(test.dense, Side::rows, test.potentials, v, 1, false));
      expect_close("P^T P v", multiply_gram(*known, Side::columns, ones, v),
                   test.dense.average(Side::columns, test.eps, test.potentials, narrow(once), 1, false),
                   test.tolerance.gram(test.dense, Side::columns, test.potentials, ones, v));
    }
  }
}

TEST_P(Product, gives_the_same_after_any_other_product) {
  Case const test = make_case({333, 257, 37, Weights::with_zeros});
  for (double const cache_bytes : {0.0, 1e9}) {
    auto const plan = make_plan(test, cache_bytes);
    Random random(10);
    Stored const v = gaussian(test, 257, 70, random), narrow_v = gaussian(test, 257, 1, random);
    Stored const l = gaussian(test, 333, 5, random), r = gaussian(test, 257, 5, random);
    std::vector<double> const w(333, 1.0), in(257, 1.0);
    auto const all = [&] {
      return std::array{multiply(*plan, Side::rows, Scaling::plan, v.view()),
                        multiply(*plan, Side::rows, Scaling::plan, narrow_v.view()),
                        multiply_hadamard(*plan, Side::rows, l, r, v), multiply_gram(*plan, Side::columns, w, in)};
    };
    auto const first = all();
    EXPECT_EQ(all(), first);
  }
}

TEST_P(Product, writes_float32) {
  Case const test = make_case({50, 60, 3});
  auto const plan = make_plan(test);
  for (std::int64_t const p : {1, 3}) {
    Random random(11);
    Stored const v = gaussian(test, 60, p, random);
    std::vector<double> expected = multiply(*plan, Side::rows, Scaling::plan, v.view());
    for (double& value : expected) value = static_cast<float>(value);
    Stored out(expected, 50, p, DataType::float32, 1);
    plan->multiply(Side::rows, Scaling::plan, v.view(), out.mutable_view());
    EXPECT_TRUE(out.padding_untouched());
    EXPECT_EQ(out.values(), expected);
  }
}

// A plan copies the potentials: the operator may sweep on, or go away.
TEST_P(Product, stays_when_the_operator_moves_on) {
  Case const test = make_case({50, 60, 3});
  auto entropic = make_operator(test);
  auto const plan = entropic->plan(test.eps);
  std::vector<double> const ones(60, 1.0);
  std::vector<double> const before = multiply(*plan, Side::rows, ones);
  entropic->sweep({test.eps}, 3);
  auto const later = entropic->plan(test.eps);
  entropic.reset();
  EXPECT_EQ(multiply(*plan, Side::rows, ones), before);
  EXPECT_NE(multiply(*later, Side::rows, ones), before);
}

TEST_P(Product, at_a_tiny_eps_equals_the_oracle) {
  Case const test = make_case({40, 50, 2, Weights::uniform, Place::origin, 1e-7});
  auto const plan = make_plan(test);
  Random random(12);
  for (Side const side : {Side::rows, Side::columns}) {
    std::vector<double> const v = gaussian_points(plan->size(other(side)), 1, random);
    expect_close("P v", multiply(*plan, side, v), test.dense.average(side, test.eps, test.potentials, v, 1, false),
                 test.tolerance.product(test.dense, side, test.potentials, v, 1, false));
  }
}

// Logits so large that the rounding of an exponential and its bound cannot share a constant. They are noise, but the
// same noise in each pass of the CPU: shares still add up to 1.
class ProductOfNoise : public Product {};
INSTANTIATE_TEST_SUITE_P(, ProductOfNoise,
                         testing::Values(Target{DeviceType::cpu, Precision::float32},
                                         Target{DeviceType::cpu, Precision::float64}),
                         target_name);

TEST_P(ProductOfNoise, has_shares_that_add_up) {
  Case const test = make_case({40, 50, 2, Weights::uniform, Place::origin, is_float64() ? 1e-17 : 1e-9});
  auto const plan = make_plan(test);
  for (Side const side : {Side::rows, Side::columns}) {
    std::vector<double> const ones(plan->size(other(side)), 1.0);
    MatrixView const v(ones.data(), static_cast<std::int64_t>(ones.size()), 1);
    for (double const share : multiply(*plan, side, Scaling::shares, v)) {
      EXPECT_NEAR(share, 1, 2 * test.tolerance.sum_error(side));
    }
  }
}

// A point so far away that its entries are beyond what float32 holds beside those of others.
TEST_P(ProductOfPoints, of_product_and_transpose_at_a_far_point) {
  std::int64_t const n = 40, m = 50;
  Problem problem = make_problem({n, m, 1});
  std::vector<double> x = problem.x.values();
  x[7] = 18;
  problem.x = Stored(x, n, 1);
  auto const entropic = make_operator(problem);
  entropic->set_potentials({}, {});
  auto const plan = entropic->plan(1.0);
  VectorOperations const& vectors = plan->vectors();
  auto const v = vectors.make(Side::rows), gram = vectors.make(Side::rows), twice = vectors.make(Side::rows);
  auto const w = vectors.make(Side::columns), between = vectors.make(Side::columns);
  vectors.read(std::vector<double>(n, 1.0), *v);
  vectors.read(std::vector<double>(m, 1.0), *w);
  plan->multiply_gram(Side::rows, *w, *v, *gram);
  plan->multiply(Side::columns, *v, *between);
  plan->multiply(Side::rows, *between, *twice);
  std::vector<double> actual(n), expected(n);
  vectors.write(*gram, actual);
  vectors.write(*twice, expected);
  EXPECT_LT(expected[7], 1e-60);
  // Each is two products, with logits of up to 18^2 log2(e).
  double const relative = 8 * arithmetic(1).unit * (18 * 18 * 1.45 + 64);
  for (std::int64_t i = 0; i < n; ++i) EXPECT_NEAR(actual[i], expected[i], relative * expected[i]) << i;
}

}  // namespace
}  // namespace monge::oracle
