// Passes whose row blocks meet the column tiles of a list, each kernel against the oracle.
#include <array>
#include <limits>

#include "cuda/entropic/entropic_operator.hpp"
#include "cuda/entropic/problem.hpp"
#include "cuda/entropic/update.hpp"
#include "cuda/vectors/kernels.hpp"
#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

struct Kernel {
  std::int64_t d;
  Precision precision;
};
void PrintTo(Kernel const& kernel, std::ostream* out) {
  *out << "cuda_" << name(kernel.precision) << "_d" << kernel.d;
}

class TileList : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }

  /// List of tiles for each row block.
  using Lists = std::vector<std::vector<int>>;

  /// A half-step of the rows, before it is given lists.
  struct Rows {
    cuda::Problem problem;
    cuda::Potentials potentials;
    double eps;
    cuda::Costs::Launch launch;
  };
  static Rows make_rows(Problem const& problem, std::span<double const> g, double eps) {
    auto const entropic = backend_of(Context::cuda())
                              .entropic_operator(problem.geometry(), {problem.a, problem.b}, {GetParam().precision, 0});
    Rows rows{static_cast<cuda::EntropicOperator const&>(*entropic).problem(), {}, eps, {}};
    cuda::SharedRuntime const& runtime = rows.problem.runtime;
    cuda::Costs const& costs = *rows.problem.costs;
    cuda::DeviceArray<double> const given = cuda::uploaded(runtime, std::vector<double>(g.begin(), g.end()));
    rows.potentials[0] = cuda::DeviceVector(runtime, problem.n());
    rows.potentials[1] = cuda::DeviceVector(runtime, problem.m());
    cuda::load_vector({given.data()}, costs.size(Side::columns), 1, costs.shift(Side::columns),
                      rows.potentials[1].data(), runtime->stream());
    rows.launch = costs.launch(Side::rows, cuda::Pass::softmin, GetParam().precision == Precision::tf32);
    return rows;
  }

  /// f+, each row block meeting the tiles of its list.
  static std::vector<double> softmin(Rows const& half_step, Lists const& lists, int resident_blocks) {
    cuda::SharedRuntime const& runtime = half_step.problem.runtime;
    std::vector<std::int64_t> begin{0};
    std::vector<int> list;
    for (std::vector<int> const& tiles : lists) {
      list.insert(list.end(), tiles.begin(), tiles.end());
      begin.push_back(static_cast<std::int64_t>(list.size()));
    }
    auto const device_begin = cuda::uploaded(runtime, begin);
    auto const device_list = cuda::uploaded(runtime, list);
    cuda::Costs::Launch launch = half_step.launch;
    cuda::WorkPlan const work = cuda::plan_listed_work(begin, launch.plan.work.rows_per_block, resident_blocks,
                                                       device_begin.data(), device_list.data());
    launch.plan.work = launch.arguments.work = work;

    // Its logits and its memory serve the pass with lists.
    cuda::Transform const without = cuda::transform(half_step.problem, Side::rows, half_step.potentials, half_step.eps);
    cuda::PackedSide const points = half_step.problem.side(Side::rows);
    cuda::DeviceArray<unsigned char> const partials(
        runtime, static_cast<std::int64_t>(points.padded_size) * work.slots * 2 * size_of(points.scalar));
    launch.arguments.parameters = without.parameters.data();
    launch.arguments.logits = without.logits.values.data();
    launch.arguments.factors = without.logits.factors.data();
    launch.arguments.partials = partials.data();
    cuda::launch_pass(launch.plan, launch.arguments, runtime->stream());
    cuda::softmin_values({0, points, partials.data(), nullptr, work, without.parameters.data()},
                         {without.plus.data(), without.reference.data(), without.sum.data()}, runtime->stream());
    std::vector<double> result = cuda::download(*runtime, without.plus.data(), points.size);
    std::vector<double> const shift = cuda::download(*runtime, half_step.problem.costs->shift(Side::rows), points.size);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] += shift[i];
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(, TileList,
                         testing::Values(Kernel{3, Precision::float32}, Kernel{20, Precision::float32},
                                         Kernel{64, Precision::float32}, Kernel{200, Precision::float32},
                                         Kernel{20, Precision::tf32}, Kernel{200, Precision::tf32},
                                         Kernel{3, Precision::float64}, Kernel{64, Precision::float64}),
                         testing::PrintToStringParamName());

TEST_P(TileList, is_all_that_a_row_block_meets) {
  auto const [d, precision] = GetParam();
  Problem const problem = make_problem({2000, 1500, d});
  Dense const dense(problem);
  double const eps = 0.05 * Magnitudes(problem).spread();
  Random random(3);
  std::vector<double> g = Magnitudes(problem).shift(Side::columns);
  for (double& value : g) value += random.uniform(-eps, eps);
  Tolerance const tolerance(problem, eps, arithmetic({DeviceType::cuda}, precision, d));
  Rows const half_step = make_rows(problem, g, eps);
  cuda::WorkPlan const& all = half_step.launch.plan.work;
  int const columns = half_step.problem.costs->padded_size(Side::columns) / all.column_tiles;
  ASSERT_GE(all.row_blocks, 4);
  ASSERT_GE(all.column_tiles, 12);

  // All tiles from last to first; and a block diagonal of three unequal blocks, the second row block having none.
  Lists reversed(static_cast<std::size_t>(all.row_blocks)), diagonal = reversed;
  auto const part = [](int index, int count) { return index < count / 4 ? 0 : index < count * 2 / 3 ? 1 : 2; };
  for (int row_block = 0; row_block < all.row_blocks; ++row_block) {
    for (int tile = all.column_tiles - 1; tile >= 0; --tile) {
      reversed[static_cast<std::size_t>(row_block)].push_back(tile);
      if (row_block != 1 && part(tile, all.column_tiles) == part(row_block, all.row_blocks))
        diagonal[static_cast<std::size_t>(row_block)].push_back(tile);
    }
  }
  Vector const expected_of_all = dense.softmin(Side::rows, eps, widen(g));
  Vector expected_of_diagonal(expected_of_all.size());
  for (int p = 0; p < 3; ++p) {
    Vector listed = widen(g);
    for (std::size_t j = 0; j < listed.size(); ++j) {
      if (part(static_cast<int>(j) / columns, all.column_tiles) != p)
        listed[j] = -std::numeric_limits<Real>::infinity();
    }
    Vector const softmin = dense.softmin(Side::rows, eps, listed);
    for (std::size_t i = 0; i < softmin.size(); ++i) {
      if (part(static_cast<int>(i) / all.rows_per_block, all.row_blocks) == p) expected_of_diagonal[i] = softmin[i];
    }
  }

  // Several row blocks a block; several blocks a row block; a block for each tile.
  for (int const resident : {3, 3 * all.row_blocks + 1, 1 << 20}) {
    SCOPED_TRACE(testing::Message() << resident << " blocks");
    expect_close("all tiles", softmin(half_step, reversed, resident), expected_of_all,
                 tolerance.softmin(Side::rows, widen(g), expected_of_all));
    std::vector<double> actual = softmin(half_step, diagonal, resident);
    for (int i = all.rows_per_block; i < 2 * all.rows_per_block; ++i) {
      double& value = actual[static_cast<std::size_t>(i)];
      ASSERT_EQ(value, std::numeric_limits<double>::infinity()) << "of no columns, row " << i;
      value = static_cast<double>(expected_of_diagonal[static_cast<std::size_t>(i)]);
    }
    expect_close("a block diagonal", actual, expected_of_diagonal,
                 tolerance.softmin(Side::rows, widen(g), expected_of_diagonal));
  }
}

}  // namespace
}  // namespace monge::oracle
