// Problems with so many tiles that every block of a device has several, against the CPU in float64; and that against
// the oracle on a few rows.
#include <algorithm>
#include <cmath>

#include "cuda/entropic/entropic_operator.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

constexpr std::int64_t kWide = 64, kFactors = 5;

struct Size {
  std::int64_t n, m, d;
  bool portable = false;
};
void PrintTo(Size const& size, std::ostream* out) {
  *out << (size.portable ? "cuda_portable_d" : "cuda_d") << size.d;
}

class ManyTiles : public testing::TestWithParam<Size> {
 protected:
  void SetUp() override {
    require_device(DeviceType::cuda);
    if (!IsSkipped() && !HasFatalFailure() && GetParam().portable) portable_ = use_portable_kernels();
  }

 private:
  std::shared_ptr<void> portable_;
};
// The kernel of exact differences has the largest tiles and the most blocks; it needs the most points.
INSTANTIATE_TEST_SUITE_P(, ManyTiles,
                         testing::Values(Size{20000, 19000, 3}, Size{9000, 8900, 20}, Size{9000, 8900, 64},
                                         Size{9000, 8900, 200}, Size{9000, 8900, 20, true}, Size{9000, 8900, 64, true},
                                         Size{9000, 8900, 200, true}),
                         testing::PrintToStringParamName());

/// Whether blocks take several row blocks, row blocks several blocks, and segments so many tiles that the sums of the
/// first few were put aside before the last.
void expect_many(cuda::WorkPlan const& work) {
  EXPECT_GT(work.tiles, work.grid);
  EXPECT_GT(work.slots, 1);
  bool several = false;
  std::int64_t longest = 0;
  for (int block = 0; block < work.grid; ++block) {
    std::int64_t const first = work.first_tile(block), end = work.first_tile(block + 1);
    several |= work.row_block(first) != work.row_block(end - 1);
    longest = std::max(longest, std::min(end, work.begin(work.row_block(first) + 1)) - first);
  }
  EXPECT_TRUE(several);
  EXPECT_GT(longest, 4);
}

TEST_P(ManyTiles, make_several_segments_a_block_and_several_blocks_a_row_block) {
  Problem const problem = make_problem({GetParam().n, GetParam().m, GetParam().d});
  Context const context = Context::cuda();
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    auto const entropic =
        backend_of(context).entropic_operator(problem.geometry(), {problem.a, problem.b}, {precision, 0});
    cuda::Costs const& costs = *static_cast<cuda::EntropicOperator const&>(*entropic).problem().costs;
    for (Side const side : {Side::rows, Side::columns}) {
      for (cuda::Pass const pass : {cuda::Pass::softmin, cuda::Pass::product, cuda::Pass::entries, cuda::Pass::logits})
        expect_many(costs.sum_pass(side, pass, nullptr)->work());
      expect_many(costs.sum_pass(side, cuda::Pass::softmin, nullptr, true)->work());
    }
  }
}

/// A problem, and a plan of it that is not feasible.
struct Trial {
  explicit Trial(Size const& size)
      : problem(make_problem({size.n, size.m, size.d})), eps(0.05 * Magnitudes(problem).spread()) {
    auto const entropic = operator_of(Context::cpu(), Precision::float64);
    entropic->sweep({eps}, 1);
    potentials = potentials_of(*entropic);
    for (Vector* const potential : {&potentials.f, &potentials.g}) {
      for (Real& value : *potential) value = static_cast<double>(value + random.uniform(-eps, eps));
    }
  }

  /// Keeps nothing between passes.
  std::unique_ptr<EntropicOperator> operator_of(Context const& context, Precision precision) const {
    auto entropic = backend_of(context).entropic_operator(problem.geometry(), {problem.a, problem.b}, {precision, 0});
    if (!potentials.f.empty()) entropic->set_potentials(narrow(potentials.f), narrow(potentials.g));
    return entropic;
  }
  std::unique_ptr<PlanOperator> plan_of(Context const& context, Precision precision) const {
    return operator_of(context, precision)->plan(eps);
  }
  std::vector<double> normal(std::int64_t rows, std::int64_t columns = 1) {
    return gaussian_points(rows, columns, random);
  }
  /// Tolerance for a result in this precision on CUDA against one of the CPU in float64: errors of both add up.
  Tolerance tolerance(Precision precision) const {
    Arithmetic const one = arithmetic({DeviceType::cuda}, precision, problem.d());
    Arithmetic const two = arithmetic({}, Precision::float64, problem.d());
    return {problem, eps, {one.unit + two.unit, one.product + two.product}};
  }

  Random random{2};
  Problem problem;
  double eps;
  Potentials potentials;
};

std::vector<double> transform(PlanOperator& plan, Side side) {
  std::vector<double> out(static_cast<std::size_t>(plan.size(side)));
  plan.transform(side, out);
  return out;
}

std::vector<double> marginal(PlanOperator& plan, Side side) {
  std::vector<double> out(static_cast<std::size_t>(plan.size(side)));
  plan.vectors().write(plan.marginal(side), out);
  return out;
}

/// P V or P^T V, of as many columns as the values make.
std::vector<double> multiply(PlanOperator& plan, Side side, std::vector<double> const& v) {
  std::int64_t const rows = plan.size(side), count = plan.size(other(side));
  std::int64_t const p = static_cast<std::int64_t>(v.size()) / count;
  std::vector<double> out(static_cast<std::size_t>(rows * p));
  plan.multiply(side, Scaling::plan, {v.data(), count, p}, {out.data(), rows, p});
  return out;
}

/// (P o L R^T) v, L and R having kFactors columns.
std::vector<double> hadamard(PlanOperator& plan, Side side, std::vector<double> const& l, std::vector<double> const& r,
                             std::vector<double> const& v) {
  std::int64_t const rows = plan.size(side), count = plan.size(other(side));
  std::vector<double> out(static_cast<std::size_t>(rows));
  plan.multiply_hadamard(side, {l.data(), rows, kFactors}, {r.data(), count, kFactors}, {v.data(), count, 1},
                         {out.data(), rows, 1});
  return out;
}

std::vector<double> gram(PlanOperator& plan, Side side, std::vector<double> const& w, std::vector<double> const& v) {
  auto const weight = plan.vectors().make(other(side)), in = plan.vectors().make(side), out = plan.vectors().make(side);
  plan.vectors().read(w, *weight);
  plan.vectors().read(v, *in);
  plan.multiply_gram(side, *weight, *in, *out);
  std::vector<double> result(v.size());
  plan.vectors().write(*out, result);
  return result;
}

/// The values of the 40 largest entries of each point.
std::vector<double> largest(PlanOperator& plan, Side side) {
  std::int64_t const k = 40, rows = plan.size(side);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(rows * k));
  std::vector<double> values(indices.size());
  plan.entries().top_k(side, {indices.data(), rows, k, k, {}}, {values.data(), rows, k});
  return values;
}

/// Row pointers and columns of the entries above a threshold.
std::vector<std::int64_t> above(PlanOperator& plan, double threshold) {
  std::int64_t const n = plan.size(Side::rows);
  std::vector<std::int64_t> result(static_cast<std::size_t>(n + 1));
  std::int64_t const total = plan.entries().count_above(threshold, {result.data(), n + 1, 1, 1, {}});
  result.resize(static_cast<std::size_t>(n + 1 + total));
  std::vector<double> values(static_cast<std::size_t>(total));
  EXPECT_GT(total, 0);
  EXPECT_EQ(plan.entries().entries_above(threshold, {result.data(), n + 1, 1, 1, {}},
                                         {result.data() + n + 1, total, 1, 1, {}}, values),
            n);
  return result;
}

std::vector<std::int64_t> drawn(PlanOperator& plan) {
  std::vector<std::int64_t> pairs(4000);
  plan.entries().sample(4, {pairs.data(), 2000, 2, 2, {}});
  return pairs;
}

std::vector<double> magnitudes_of(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

/// |l_i| of rows of kFactors numbers.
std::vector<double> lengths_of(std::vector<double> const& rows) {
  std::vector<double> result(rows.size() / kFactors);
  for (std::size_t k = 0; k < rows.size(); ++k) result[k / kFactors] += rows[k] * rows[k];
  for (double& value : result) value = std::sqrt(value);
  return result;
}

std::vector<double> product(std::vector<double> a, std::vector<double> const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] *= b[i];
  return a;
}

/// value_ip (relative_i + more), as a tolerance.
Vector share_of(std::vector<double> const& value, Vector const& relative, Real more) {
  std::size_t const p = value.size() / relative.size();
  Vector result = widen(value);
  for (std::size_t k = 0; k < result.size(); ++k) result[k] *= relative[k / p] + more;
  return result;
}

/// The p values each of some points.
template <class T>
std::vector<T> part(std::vector<T> const& values, std::vector<std::size_t> const& points, std::size_t p = 1) {
  std::vector<T> result;
  for (std::size_t const i : points) {
    for (std::size_t k = 0; k < p; ++k) result.push_back(values[i * p + k]);
  }
  return result;
}

/// The problem with some of the points of one side.
Problem part(Problem problem, Side side, std::vector<std::size_t> const& points) {
  Stored& cloud = side == Side::rows ? problem.x : problem.y;
  std::vector<double>& weights = side == Side::rows ? problem.a : problem.b;
  std::int64_t const d = problem.d();
  cloud =
      Stored(part(cloud.values(), points, static_cast<std::size_t>(d)), static_cast<std::int64_t>(points.size()), d);
  weights = part(weights, points);
  return problem;
}

TEST_P(ManyTiles, are_right_on_the_cpu) {
  Trial trial(GetParam());
  auto const plan = trial.plan_of(Context::cpu(), Precision::float64);
  Tolerance const tolerance(trial.problem, trial.eps, arithmetic({}, Precision::float64, GetParam().d));
  for (Side const side : {Side::rows, Side::columns}) {
    auto const size = static_cast<std::size_t>(plan->size(side));
    std::vector<std::size_t> const some{0, 1, size / 3, size / 2, size - 2, size - 1};
    Dense const dense(part(trial.problem, side, some));
    Potentials potentials = trial.potentials;
    potentials.of(side) = part(potentials.of(side), some);
    Vector const relative = part(tolerance.plan(side, trial.potentials), some);
    Real const sum = tolerance.sum_error(side);

    Vector const softmin = dense.softmin(side, trial.eps, potentials.of(other(side)));
    Vector allowed = tolerance.softmin(side, trial.potentials.of(other(side)), widen(transform(*plan, side)));
    expect_close("transform", part(transform(*plan, side), some), softmin, part(allowed, some));
    Vector const row = dense.marginal(side, trial.eps, potentials);
    expect_close("marginal", part(marginal(*plan, side), some), row, share_of(narrow(row), relative, 0));

    std::vector<double> const v = trial.normal(plan->size(other(side)), kWide);
    Vector const sizes = dense.average(side, trial.eps, potentials, magnitudes_of(v), kWide, false);
    expect_close("P V", part(multiply(*plan, side, v), some, kWide),
                 dense.average(side, trial.eps, potentials, v, kWide, false), share_of(narrow(sizes), relative, sum));

    std::vector<double> const one = trial.normal(plan->size(other(side)));
    Vector const of_one = dense.average(side, trial.eps, potentials, magnitudes_of(one), 1, false);
    expect_close("P v", part(multiply(*plan, side, one), some),
                 dense.average(side, trial.eps, potentials, one, 1, false), share_of(narrow(of_one), relative, sum));
    std::vector<double> const l = trial.normal(plan->size(side), kFactors),
                              r = trial.normal(plan->size(other(side)), kFactors);
    std::vector<double> const right = product(lengths_of(r), magnitudes_of(one));
    std::vector<double> const products =
        product(part(lengths_of(l), some), narrow(dense.average(side, trial.eps, potentials, right, 1, false)));
    Arithmetic const factors = arithmetic({}, Precision::float64, kFactors);
    expect_close("(P o L R^T) v", part(hadamard(*plan, side, l, r, one), some),
                 dense.hadamard(side, trial.eps, potentials, part(l, some, kFactors), r, kFactors, one, 1),
                 share_of(products, relative, sum + factors.product + 2 * factors.unit));
  }
}

TEST_P(ManyTiles, sweep_as_on_the_cpu) {
  Trial const trial(GetParam());
  Context const cpu = Context::cpu(), cuda = Context::cuda();
  for (auto const& [kind, count] : {std::pair{Sweep{trial.eps}, 2}, std::pair{Sweep{trial.eps, true}, 1}}) {
    auto const expected = trial.operator_of(cpu, Precision::float64);
    expected->sweep(kind, count);
    SweepErrors const errors = expected->errors();
    Potentials const iterates = potentials_of(*expected);
    for (Precision const precision : {Precision::float32, Precision::tf32, Precision::float64}) {
      SCOPED_TRACE(testing::Message() << name(precision) << (kind.symmetric ? ", symmetric" : ""));
      auto const entropic = trial.operator_of(cuda, precision);
      entropic->sweep(kind, count);
      Potentials const actual = potentials_of(*entropic);
      Real const error = trial.tolerance(precision).sweeps(kind, count, {iterates});
      for (Side const side : {Side::rows, Side::columns})
        expect_close("iterates", narrow(actual.of(side)), iterates.of(side), Vector(actual.of(side).size(), error));
      Real const of_errors = 2 * std::expm1(2 * error / trial.eps);  // As Tolerance::sweep_errors, of mass 1.
      expect_close("row error", entropic->errors().row, errors.row, of_errors);
      expect_close("column error", entropic->errors().column, errors.column, of_errors);
      expect_close("gradient norm", entropic->errors().gradient_norm, errors.gradient_norm, 2 * of_errors);
    }
  }
}

// The rectangles of an evaluation have several rows of tiles and several strips.
TEST_P(ManyTiles, evaluate_as_on_the_cpu) {
  Trial const trial(GetParam());
  Tolerance const tolerance = trial.tolerance(Precision::float64);
  struct Found {
    Evaluation values;
    std::vector<double> marginal[2];
  };
  auto const found_on = [&](Context const& context) {
    auto const entropic = trial.operator_of(context, Precision::float64);
    VectorOperations const& vectors = entropic->vectors();
    auto const row = vectors.make(Side::rows), column = vectors.make(Side::columns);
    Found found{entropic->evaluate(trial.eps, row.get(), column.get()), {}};
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double>& values = found.marginal[side == Side::rows ? 0 : 1];
      values.resize(static_cast<std::size_t>(side == Side::rows ? GetParam().n : GetParam().m));
      vectors.write(side == Side::rows ? *row : *column, values);
    }
    return found;
  };
  Found const expected = found_on(Context::cpu()), actual = found_on(Context::cuda());
  Real largest = 0;
  for (Side const side : {Side::rows, Side::columns}) {
    SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
    std::vector<double> const& marginal = expected.marginal[side == Side::rows ? 0 : 1];
    Vector const relative = tolerance.plan(side, trial.potentials);
    expect_close("marginal", actual.marginal[side == Side::rows ? 0 : 1], widen(marginal),
                 share_of(marginal, relative, 0));
    largest = std::max(largest, *std::max_element(relative.begin(), relative.end()));
  }
  // Errors of entries, relative to them, count as often as their costs; those of scores are eps times as large.
  expect_close("transport cost", actual.values.transport_cost, expected.values.transport_cost,
               largest * (Magnitudes(trial.problem).spread() + trial.eps) * expected.values.mass);
}

/// check(plan, precision) of the trial's plan on CUDA. Its rows pass through memory in several chunks: all at once they
/// would take this many bytes a pair in float32, 8 in float64.
template <class Check>
void expect_in_chunks(Trial const& trial, int bytes_in_float32, Check const& check) {
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    SCOPED_TRACE(name(precision));
    Pool pool;
    check(*trial.plan_of(Context::cuda({.allocator = pool.allocator()}), precision), precision);
    std::int64_t const bytes = precision == Precision::float32 ? bytes_in_float32 : 8;
    EXPECT_LT(pool.largest_block, static_cast<std::size_t>(bytes * trial.problem.n() * trial.problem.m()));
  }
}

// Tolerances as in oracle/tolerance.hpp, with the CPU's plan in place of the dense one.
TEST_P(ManyTiles, have_the_products_of_the_cpu) {
  Trial trial(GetParam());
  auto const cpu = trial.plan_of(Context::cpu(), Precision::float64);
  // The high halves of float32 entries take 2 bytes a pair.
  expect_in_chunks(trial, 2, [&](PlanOperator& cuda, Precision precision) {
    Tolerance const tolerance = trial.tolerance(precision);
    for (Side const side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
      Side const far = other(side);
      Vector const relative = tolerance.plan(side, trial.potentials);
      Real const sum = tolerance.sum_error(side);

      std::vector<double> const softmin = transform(*cpu, side), row = marginal(*cpu, side);
      expect_close("transform", transform(cuda, side), widen(softmin),
                   tolerance.softmin(side, trial.potentials.of(far), widen(softmin)));
      expect_close("marginal", marginal(cuda, side), widen(row), share_of(row, relative, 0));
      std::vector<double> const one = trial.normal(cpu->size(far)), wide = trial.normal(cpu->size(far), kWide);
      for (std::vector<double> const& v : {one, wide}) {
        expect_close("P V", multiply(cuda, side, v), widen(multiply(*cpu, side, v)),
                     share_of(multiply(*cpu, side, magnitudes_of(v)), relative, sum));
      }

      std::vector<double> const l = trial.normal(cpu->size(side), kFactors), r = trial.normal(cpu->size(far), kFactors);
      Arithmetic const factors = arithmetic({DeviceType::cuda}, precision, kFactors);
      std::vector<double> const sizes =
          product(lengths_of(l), multiply(*cpu, side, product(lengths_of(r), magnitudes_of(one))));
      expect_close("(P o L R^T) v", hadamard(cuda, side, l, r, one), widen(hadamard(*cpu, side, l, r, one)),
                   share_of(sizes, relative, sum + factors.product + 2 * factors.unit));

      std::vector<double> const u = trial.normal(cpu->size(side));
      std::vector<double> w = trial.normal(cpu->size(far));
      std::vector<double> const column = marginal(*cpu, far);
      for (std::size_t j = 0; j < w.size(); ++j) w[j] /= column[j];
      Vector inner = widen(product(magnitudes_of(w), multiply(*cpu, far, magnitudes_of(u))));
      Vector const there = tolerance.plan(far, trial.potentials);
      Real const here = *std::max_element(relative.begin(), relative.end()) + sum;
      for (std::size_t j = 0; j < inner.size(); ++j)
        inner[j] *= (1 + there[j] + tolerance.sum_error(far)) * (1 + std::max(there[j] + sum, here)) - 1;
      expect_close("P diag(w) P^T u", gram(cuda, side, w, u),
                   widen(multiply(*cpu, side, product(w, multiply(*cpu, far, u)))),
                   widen(multiply(*cpu, side, narrow(inner))));
    }
  });
}

TEST_P(ManyTiles, have_the_entries_of_the_cpu) {
  Trial trial(GetParam());
  auto const cpu = trial.plan_of(Context::cpu(), Precision::float64);
  expect_in_chunks(trial, 4, [&](PlanOperator& cuda, Precision precision) {
    Tolerance const tolerance = trial.tolerance(precision);
    for (Side const side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
      // Logarithms relative to that of the row's sum round once more: by 40 units at most if within 19 nats of it.
      std::vector<double> const top = largest(*cpu, side);
      expect_close("the largest entries", largest(cuda, side), widen(top),
                   share_of(top, tolerance.plan(side, trial.potentials), tolerance.sum_error(side)));
    }
    if (precision == Precision::float64) {
      // Off by some 1e-13, none of the 1e8 entries is so near the threshold and no draw so near a boundary.
      double const threshold = 1.000001 * largest(*cpu, Side::rows)[59];  // The twentieth of row 1.
      EXPECT_EQ(above(cuda, threshold), above(*cpu, threshold));
      EXPECT_EQ(drawn(cuda), drawn(*cpu));
    }
  });
}

}  // namespace
}  // namespace monge::oracle
