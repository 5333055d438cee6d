// What only the CUDA backend does with a cost matrix: sweeps from one read of it, line by line of the memory, by
// several blocks where a line is too long for one, and sums across the lines that are made again where they were lost.
#include <cmath>
#include <limits>
#include <optional>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct MatrixCase {
  std::int64_t n, m;
  std::int64_t padding = 0;
  Weights weights = Weights::uniform;
  double forbidden = 0;  // The share of such pairs.
  double eps = 0.05;     // Costs are in [-0.5, 0.5).
};

struct Matrix {
  Stored memory;
  bool transposed;
  std::vector<double> a, b;
  Dense dense;
};

Matrix make_matrix(MatrixCase const& recipe, DataType storage, bool transposed) {
  Random random(recipe.n * 1000 + recipe.m);
  std::int64_t const n = recipe.n, m = recipe.m;
  std::vector<double> cost(n * m), memory(n * m);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const value = static_cast<float>(random.uniform(-0.5, 0.5));
      // The first row and column are partners of all.
      bool const forbidden = i > 0 && j > 0 && random.uniform() < recipe.forbidden;
      cost[i * m + j] = memory[transposed ? j * n + i : i * m + j] = forbidden ? kInfinity : value;
    }
  }
  std::vector<double> const a = make_weights(recipe.weights, n, 2.5, random);
  std::vector<double> const b = make_weights(recipe.weights, m, 2.5, random);
  return {Stored(memory, transposed ? m : n, transposed ? n : m, storage, recipe.padding), transposed, a, b,
          Dense(widen(cost), a, b)};
}

struct Layout {
  Precision precision;
  DataType storage;
  bool transposed;
  bool portable;  // Without sweeps from one read.
};
std::string layout_name(testing::TestParamInfo<Layout> const& info) {
  return std::string("cuda_") + (info.param.portable ? "portable_" : "") + std::string(name(info.param.precision)) +
         "_of_" + std::string(name(info.param.storage)) + (info.param.transposed ? "_transposed" : "");
}

class FusedSweep : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    require_device(DeviceType::cuda);
    if (IsSkipped() || HasFatalFailure()) return;
    if (GetParam().portable) portable_ = use_portable_kernels();
    context_ = make_context(DeviceType::cuda);
  }

  void expect_sweeps(MatrixCase const& recipe, Sweep const& kind, int count) const {
    SCOPED_TRACE(testing::Message() << recipe.n << " x " << recipe.m << " relaxation " << kind.relaxation
                                    << (kind.symmetric ? " symmetric" : ""));
    Matrix const matrix = make_matrix(recipe, GetParam().storage, GetParam().transposed);
    auto const entropic = backend_of(*context_).entropic_operator(CostMatrix{matrix.memory.view(), matrix.transposed},
                                                                  {matrix.a, matrix.b}, {GetParam().precision, 0});
    // At the least cost: then no step of a symmetric sweep starts from above its target.
    Potentials const start{Vector(recipe.n, -0.5), Vector(recipe.m, 0)};
    entropic->set_potentials(narrow(start.f), narrow(start.g));
    entropic->sweep(kind, count);
    SweepErrors const errors = entropic->errors();
    Potentials const found = potentials_of(*entropic);
    SweepResult const expected = sweep(matrix.dense, kind, count, start);

    // Logits are at most 1 / eps and some units, and each is rounded a few times. Sums of n terms in turn add to that.
    Real const unit = GetParam().precision == Precision::float64 ? 0x1p-53 : 0x1p-24;
    Real const step = unit * (8 / kind.eps + 100), allowed = 2 * count * step;
    for (Side const side : {Side::rows, Side::columns}) {
      Vector target = expected.potentials.of(side);
      std::vector<double> actual = narrow(found.of(side));
      for (std::size_t i = 0; i < target.size(); ++i) {
        if (matrix.dense.weights(side)[i] == 0) target[i] = actual[i] = 0;
      }
      expect_close(side == Side::rows ? "f" : "g", actual, target, Vector(target.size(), kind.eps * allowed));
    }
    expect_close("row error", errors.row, expected.row_error, 4 * allowed * (2.5 + expected.row_error));
    expect_close("column error", errors.column, expected.column_error, 4 * allowed * (2.5 + expected.column_error));
    expect_close("gradient norm", errors.gradient_norm, expected.gradient_norm,
                 4 * allowed * (5 + expected.row_error + expected.column_error));
  }
  void expect_all_sweeps(MatrixCase const& recipe) const {
    expect_sweeps(recipe, {.eps = recipe.eps}, 1);
    expect_sweeps(recipe, {.eps = recipe.eps}, 3);
    expect_sweeps(recipe, {.eps = recipe.eps, .symmetric = true}, 3);
    expect_sweeps(recipe, {.eps = recipe.eps, .relaxation = 1.3}, 3);
  }

 private:
  std::shared_ptr<void> portable_;
  std::optional<Context> context_;
};

TEST_P(FusedSweep, matches_the_oracle) {
  expect_all_sweeps({1, 1});
  expect_all_sweeps({1, 37});
  expect_all_sweeps({41, 1, 3});
  expect_all_sweeps({63, 65, 0, Weights::with_zeros});
  expect_all_sweeps({200, 132, 4, Weights::skewed, 0.5});
  expect_all_sweeps({333, 1029, 1, Weights::with_zeros, 0.9});
}

TEST_P(FusedSweep, takes_a_line_with_several_blocks) {
  expect_all_sweeps({6, 10300, 2, Weights::uniform, 0.01});
  expect_all_sweeps({10300, 6, 1});
  expect_sweeps({3, 30000}, {.eps = 0.05}, 2);
  expect_sweeps({30000, 3}, {.eps = 0.05}, 2);
}

TEST_P(FusedSweep, leaves_lines_that_are_too_long_to_plain_passes) {
  expect_sweeps({2, 90000}, {.eps = 0.05}, 2);
  expect_sweeps({90000, 2}, {.eps = 0.05}, 2);
}

TEST_P(FusedSweep, makes_lost_sums_again) {
  // Nearly all pairs are far below the best of their row and of their column.
  expect_all_sweeps({300, 200, 0, Weights::uniform, 0, 1e-4});
  expect_all_sweeps({300, 200, 0, Weights::skewed, 0.5, 1e-5});
}

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  for (Precision const precision : {Precision::float32, Precision::float64})
    for (DataType const storage : {DataType::float32, DataType::float64})
      for (bool const transposed : {false, true})
        for (bool const portable : {false, true}) all.push_back({precision, storage, transposed, portable});
  std::erase_if(all, [](Layout const& layout) { return layout.portable && layout.precision == Precision::float64; });
  return all;
}
INSTANTIATE_TEST_SUITE_P(, FusedSweep, testing::ValuesIn(layouts()), layout_name);

}  // namespace
}  // namespace monge::oracle
