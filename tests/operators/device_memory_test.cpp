// Inputs and outputs in device memory. Built where there is a CUDA toolkit.
#include <bit>
#include <chrono>
#include <thread>

#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

class DeviceMemory : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, DeviceMemory,
                         testing::Values(Target{DeviceType::cuda, Precision::float32},
                                         Target{DeviceType::cuda, Precision::float64}),
                         target_name);

/// Indices in device memory, rows padded.
class DeviceIndices {
 public:
  DeviceIndices(std::int64_t rows, std::int64_t columns)
      : memory_(std::vector<double>(rows * columns), rows, columns, 3), rows_(rows), columns_(columns) {}
  /// One column of these.
  explicit DeviceIndices(std::vector<std::int64_t> const& indices)
      : memory_(bits_of(indices), std::ssize(indices), 1, 3), rows_(std::ssize(indices)), columns_(1) {}
  IndexView readable() {
    MutableIndexView const all = view();
    return {all.data, all.rows, all.row_stride, all.device};
  }
  MutableIndexView view() {
    MutableMatrixView const bits = memory_.mutable_matrix();
    return {static_cast<std::int64_t*>(bits.data()), rows_, columns_, bits.row_stride(), bits.device()};
  }
  std::vector<std::int64_t> values() {
    std::vector<std::int64_t> result;
    for (double const bits : memory_.values()) result.push_back(std::bit_cast<std::int64_t>(bits));
    return result;
  }

 private:
  static std::vector<double> bits_of(std::vector<std::int64_t> const& indices) {
    std::vector<double> result;
    for (std::int64_t const index : indices) result.push_back(std::bit_cast<double>(index));
    return result;
  }
  OnDevice<double> memory_;
  std::int64_t rows_, columns_;
};

/// Two equal plans, one asked for its entries in host memory, the other in device memory.
void expect_same_entries(Plan const& host, Plan const& device) {
  std::int64_t const n = host.rows(), k = 70, count = 999;
  std::vector<std::int64_t> indices(n * k), begin(n + 1), pairs(2 * count);
  std::vector<double> values(n * k);
  host.top_k({indices.data(), n, k, k, {}}, MutableMatrixView(values.data(), n, k));
  DeviceIndices device_indices(n, k), device_begin(n + 1, 1), device_pairs(count, 2);
  OnDevice<double> device_values(values, n, k, 1);
  device_values.fill(0);
  device.top_k(device_indices.view(), device_values.mutable_matrix());
  EXPECT_EQ(device_indices.values(), indices);
  EXPECT_EQ(device_values.values(), values);

  double const threshold = values[n / 2 * k + 5];
  std::int64_t const total = host.count_above(threshold, {begin.data(), n + 1, 1, 1, {}});
  EXPECT_EQ(device.count_above(threshold, device_begin.view()), total);
  EXPECT_EQ(device_begin.values(), begin);
  std::vector<std::int64_t> columns(total);
  std::vector<double> above(total);
  host.entries_above(threshold, {begin.data(), n + 1, 1, 1, {}}, {columns.data(), total, 1, 1, {}}, above);
  DeviceIndices device_columns(total, 1);
  OnDevice<double> device_above(above, total, 1, 2);
  device_above.fill(0);
  device.entries_above(threshold, device_begin.view(), device_columns.view(), device_above.mutable_vector());
  EXPECT_EQ(device_columns.values(), columns);
  EXPECT_EQ(device_above.values(), above);

  host.sample(1, {pairs.data(), count, 2, 2, {}});
  device.sample(1, device_pairs.view());
  EXPECT_EQ(device_pairs.values(), pairs);
}

TEST_P(DeviceMemory, of_c_transforms_gives_what_host_memory_gives) {
  std::int64_t const n = 70, m = 90, d = 3;
  Problem const problem = make_problem({n, m, d});
  std::vector<double> g(m), f(n);
  for (std::int64_t j = 0; j < m; ++j) g[j] = 0.01 * static_cast<double>(j % 7);
  std::vector<std::int64_t> argmin(n);
  c_transform(context(), problem.geometry(), g, f, {argmin.data(), n, 1, 1, {}});
  OnDevice<double> const x(problem.x.values(), n, d, 3), y(problem.y.values(), m, d), device_g(g, m, 1, 1);
  OnDevice<double> device_f(f, n, 1, 2);
  device_f.fill(0);
  DeviceIndices device_argmin(n, 1);
  c_transform(context(), PointCloud{x.matrix(), y.matrix()}, device_g.vector(), device_f.mutable_vector(),
              device_argmin.view());
  EXPECT_EQ(device_f.values(), f);
  EXPECT_EQ(device_argmin.values(), argmin);
  EXPECT_EQ(semi_dual_value(context(), {}, {}, device_f.vector(), device_g.vector()),
            semi_dual_value(context(), {}, {}, f, g));
}

TEST_P(DeviceMemory, gives_what_host_memory_gives) {
  for (std::int64_t const d : {3, 40}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    std::int64_t const n = 70, m = 90;
    Problem const problem = make_problem({n, m, d, Weights::with_zeros, Place::shifted, 0.05, DataType::float32});
    OnDevice<float> const x(problem.x.values(), n, d, 3), y(problem.y.values(), m, d);
    OnDevice<double> const a(problem.a, n, 1, 1), b(problem.b, m, 1);
    SolveOptions options{.eps = 0.05 * Magnitudes(problem).spread(), .tolerance = 1e-3, .precision = precision()};
    Plan const host = solve(context(), problem.geometry(), problem.a, problem.b, options);
    Plan const device = solve(context(), PointCloud{x.matrix(), y.matrix()}, a.vector(), b.vector(), options);
    EXPECT_EQ(device.f(), host.f());
    EXPECT_EQ(device.report().primal, host.report().primal);

    std::vector<double> row(n), column(m), map(n * d);
    host.marginals(row, column);
    host.barycentric_projection(MutableMatrixView(map.data(), n, d));
    OnDevice<double> row_out(row, n, 1, 2), column_out(column, m, 1), map_out(std::vector<double>(n * d), n, d, 1);
    device.marginals(row_out.mutable_vector(), column_out.mutable_vector());
    device.barycentric_projection(map_out.mutable_matrix());
    EXPECT_EQ(row_out.values(), row);
    EXPECT_EQ(column_out.values(), column);
    EXPECT_EQ(map_out.values(), map);

    expect_same_entries(host, device);
    OnDevice<double> const f(host.f(), n, 1), g(host.g(), m, 1);
    options.f = f.vector();
    options.g = g.vector();
    options.tolerance = 2e-3;
    EXPECT_LE(solve(context(), PointCloud{x.matrix(), y.matrix()}, a.vector(), b.vector(), options).report().iterations,
              options.check_every);
  }
}

TEST_P(DeviceMemory, of_entries_at_pairs_gives_what_host_memory_gives) {
  for (std::int64_t const d : {3, 40}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    auto const plan = make_operator(make_problem({70, 90, d}))->plan(0.5);
    std::vector<std::int64_t> rows, columns;
    for (std::int64_t k = 0; k < 999; ++k) {
      rows.push_back(31 * k % 70);
      columns.push_back(7 * k % 90);
    }
    std::vector<double> values(rows.size());
    plan->entries().entries_at({rows.data(), 999}, {columns.data(), 999}, values);
    DeviceIndices device_rows(rows), device_columns(columns);
    OnDevice<double> device_values(values, 999, 1, 2);
    device_values.fill(0);
    plan->entries().entries_at(device_rows.readable(), device_columns.readable(), device_values.mutable_vector());
    EXPECT_EQ(device_values.values(), values);
  }
}

TEST_P(DeviceMemory, of_a_matrix_gives_what_host_memory_gives) {
  for (std::uint64_t const seed : {1, 2}) {
    Recipe const recipe{70, 90, 1,    Weights::with_zeros, Place::origin, 0.05, DataType::float32, 3,
                        1,  1,  seed, Costs::random};
    Problem const problem = oracle::make_problem(recipe);
    SCOPED_TRACE(testing::Message() << (problem.transposed ? "transposed" : "as it is"));
    OnDevice<float> const cost(problem.cost.values(), problem.cost.rows(), problem.cost.columns(), recipe.padding);
    SolveOptions const options{.eps = 0.15, .tolerance = 0, .iterations = 12, .precision = precision()};
    Plan const host = solve(context(), problem.geometry(), problem.a, problem.b, options);
    Plan const device = solve(context(), CostMatrix{cost.matrix(), problem.transposed}, problem.a, problem.b, options);
    EXPECT_EQ(device.f(), host.f());
    EXPECT_EQ(device.g(), host.g());
    EXPECT_EQ(device.report().primal, host.report().primal);
  }
}

TEST_P(DeviceMemory, what_the_default_stream_has_yet_to_write_is_waited_for) {
  Problem const problem = make_problem({50, 60, 3});
  std::vector<double> const old(problem.x.values().size(), 7.0);
  OnDevice<double> x(old, 50, 3);
  SolveOptions const options{.eps = 0.5, .tolerance = 1e-3, .precision = precision()};
  Plan const expected = solve(context(), problem.geometry(), problem.a, problem.b, options);
  check(cudaDeviceSynchronize());
  auto const sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  check(cudaLaunchHostFunc(cudaStreamLegacy, sleep, nullptr));
  x.write_later(problem.x.values());
  Plan const plan = solve(context(), PointCloud{x.matrix(), problem.y.view()}, problem.a, problem.b, options);
  EXPECT_EQ(plan.f(), expected.f());
}

/// Host memory that the device reads by itself: page-locked, or managed.
class ReadByDevice {
 public:
  ReadByDevice(std::span<double const> values, std::int64_t columns, std::int64_t stride, bool is_managed)
      : columns_(columns), stride_(stride), rows_(std::ssize(values) / columns), is_managed_(is_managed) {
    std::size_t const bytes = static_cast<std::size_t>(rows_ * stride_) * sizeof(double);
    auto const memory = reinterpret_cast<void**>(&data_);
    check(is_managed_ ? cudaMallocManaged(memory, bytes, cudaMemAttachGlobal) : cudaMallocHost(memory, bytes));
    for (std::int64_t k = 0; k < std::ssize(values); ++k) at(k) = values[static_cast<std::size_t>(k)];
  }
  ReadByDevice(ReadByDevice const&) = delete;
  ~ReadByDevice() { is_managed_ ? cudaFree(data_) : cudaFreeHost(data_); }
  void overwrite() {
    for (std::int64_t k = 0; k < rows_ * columns_; ++k) at(k) = -12345;
  }
  MatrixView matrix() const { return {data_, rows_, columns_, stride_}; }
  VectorView vector() const { return {data_, rows_, stride_}; }

 private:
  double& at(std::int64_t k) { return data_[k / columns_ * stride_ + k % columns_]; }
  std::int64_t columns_, stride_, rows_;
  bool is_managed_;
  double* data_ = nullptr;
};

// A copy from such memory goes on after it has been enqueued, and so behind whatever the device still has to do.
TEST_P(DeviceMemory, inputs_may_be_overwritten_when_a_call_with_results_there_returns) {
  std::int64_t const n = 70, m = 600;
  Problem const problem = make_problem({n, m, 3});
  Plan const plan = solve(context(), problem.geometry(), problem.a, problem.b,
                          {.eps = 0.5, .tolerance = 1e-3, .precision = precision()});
  Random random(3);
  for (bool const is_managed : {false, true}) {
    // More than small copies take, which pass through memory of the library; and few, with gaps between rows.
    for (std::int64_t const columns : {90, 1}) {
      for (std::int64_t const gap : {0, 3}) {
        SCOPED_TRACE(testing::Message() << (is_managed ? "managed, " : "page-locked, ") << columns << " columns, gap "
                                        << gap);
        std::vector<double> const v = gaussian_points(m, columns, random), w = gaussian_points(n, 1, random);
        OnDevice<double> out(std::vector<double>(n * columns), n, columns), gram(std::vector<double>(m), m, 1);
        auto const run = [&](MatrixView values, VectorView weights, VectorView first) {
          plan.apply(values, out.mutable_matrix());
          plan.apply_gram(weights, first, gram.mutable_vector());
        };
        std::vector<double> one;
        for (std::int64_t j = 0; j < m; ++j) one.push_back(v[static_cast<std::size_t>(j * columns)]);
        run({v.data(), m, columns}, w, one);
        std::vector<double> const expected = out.values(), expected_gram = gram.values();
        out.fill(0);
        gram.fill(0);
        ReadByDevice values(v, columns, columns + gap, is_managed), weights(w, 1, 1 + gap, is_managed),
            first(one, 1, 1 + gap, is_managed);
        check(cudaDeviceSynchronize());
        auto const sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); };
        check(cudaLaunchHostFunc(cudaStreamLegacy, sleep, nullptr));
        run(values.matrix(), weights.vector(), first.vector());
        for (ReadByDevice* const input : {&values, &weights, &first}) input->overwrite();
        check(cudaDeviceSynchronize());
        EXPECT_EQ(out.values(), expected);
        EXPECT_EQ(gram.values(), expected_gram);
      }
    }
  }
}

TEST_P(DeviceMemory, points_that_are_not_finite_are_found_there) {
  Problem const problem = make_problem({50, 60, 3});
  std::vector<double> values = problem.x.values();
  values[3 * 20 + 2] = std::numeric_limits<double>::infinity();
  OnDevice<float> const x(values, 50, 3);
  SolveOptions const options{.eps = 0.5, .precision = precision()};
  try {
    solve(context(), PointCloud{x.matrix(), problem.y.view()}, options);
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("x: row 20, column 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace monge::oracle
