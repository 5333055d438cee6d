// Assignments of costs, sizes and results in device memory: views of larger arrays, a recorded CUDA graph, limits.
// Built where there is a CUDA toolkit.
#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <monge/assignment.hpp>
#include <monge/error.hpp>

#include "oracle/backend_test.hpp"
#include "oracle/cuda_check.hpp"

namespace monge::oracle {
namespace {

constexpr Device kDevice{DeviceType::cuda, 0};

template <class T>
class DeviceValues {
 public:
  explicit DeviceValues(std::vector<T> const& values) : size_(values.size()) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), size_ * sizeof(T)));
    write(values);
  }
  DeviceValues(DeviceValues const&) = delete;
  DeviceValues& operator=(DeviceValues const&) = delete;
  ~DeviceValues() { cudaFree(data_); }
  T* data() const { return data_; }
  void write(std::vector<T> const& values) {
    check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

constexpr std::int64_t kPoison = 77;

/// Rows of `pairs` indices and two more, which no call may write.
struct Results {
  Results(std::int64_t problems, std::int64_t pairs, bool device) : problems(problems), pairs(pairs), device(device) {}
  AssignmentOutput output() {
    auto const at = [&](DeviceValues<std::int64_t>& on_device, std::vector<std::int64_t>& on_host) {
      return device ? on_device.data() : on_host.data();
    };
    Device const place = device ? kDevice : Device{};
    return {{at(device_rows, rows), problems, pairs, pairs + 2, place},
            {at(device_columns, columns), problems, pairs, pairs + 2, place},
            {at(device_status, status), problems, 1, 1, place}};
  }
  std::vector<std::vector<std::int64_t>> values() const {
    if (!device) return {rows, columns, status};
    return {device_rows.read(), device_columns.read(), device_status.read()};
  }
  std::int64_t problems, pairs;
  bool device;
  std::vector<std::int64_t> rows = std::vector<std::int64_t>(problems * (pairs + 2), kPoison), columns = rows;
  std::vector<std::int64_t> status = std::vector<std::int64_t>(problems, kPoison);
  DeviceValues<std::int64_t> device_rows{rows}, device_columns{columns}, device_status{status};
};

/// Matrices with gaps between rows and between matrices, of few costs, so that many assignments are optimal.
struct Batch {
  static constexpr std::int64_t kProblems = 40;
  Batch(int rows, int columns, unsigned seed)
      : rows(rows), columns(columns), stride(columns + 3), distance((rows + 1) * stride), values(make(seed)) {}
  std::vector<float> make(unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<float> made(kProblems * distance, -std::numeric_limits<float>::infinity());
    for (std::int64_t t = 0; t < kProblems; ++t) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j)
          made[t * distance + i * stride + j] = static_cast<float>(random() % 7) - 3;
      }
    }
    made[3 * distance + (rows - 1) * stride] = std::numeric_limits<float>::quiet_NaN();
    for (std::int64_t j = 0; j < columns; ++j)
      made[4 * distance + (rows / 2) * stride + j] = std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < rows; ++i)
      made[4 * distance + i * stride + columns / 2] = std::numeric_limits<float>::infinity();
    return made;
  }
  BatchView view(float const* data, Device device = {}) const {
    return {data, DataType::float32, kProblems, rows, columns, distance, stride, device};
  }
  int rows, columns;
  std::int64_t stride, distance;
  std::vector<float> values;
};

class AssignmentDeviceMemory : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

TEST_F(AssignmentDeviceMemory, cuda_gives_the_pairs_of_the_cpu_with_sizes) {
  for (auto const& [rows, columns] : {std::pair{20, 31}, {50, 17}, {33, 70}, {1, 1}, {260, 300}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
    Batch const batch(rows, columns, 1);
    std::vector<std::int64_t> n, m;
    for (std::int64_t t = 0; t < Batch::kProblems; ++t) {
      n.push_back(t % (rows + 1));
      m.push_back(5 * t % (columns + 1));
    }
    DeviceValues<float> const costs(batch.values);
    DeviceValues<std::int64_t> const on_n(n), on_m(m);
    std::int64_t const pairs = std::min(rows, columns) + 1;
    for (bool const sized : {false, true}) {
      for (bool const maximize : {false, true}) {
        AssignmentOptions on_host{maximize}, on_device{maximize};
        if (sized) {
          on_host.rows = {n.data(), Batch::kProblems, 1, {}};
          on_host.columns = {m.data(), Batch::kProblems, 1, {}};
          on_device.rows = {on_n.data(), Batch::kProblems, 1, kDevice};
          on_device.columns = {on_m.data(), Batch::kProblems, 1, kDevice};
        }
        Results expected(Batch::kProblems, pairs, false), found(Batch::kProblems, pairs, true);
        linear_sum_assignment(Context::cpu(), batch.view(batch.values.data()), expected.output(), on_host);
        linear_sum_assignment(Context::cuda(), batch.view(costs.data(), kDevice), found.output(), on_device);
        EXPECT_EQ(found.values(), expected.values());
        Results of_list(Batch::kProblems, pairs, true);  // Host sizes make a list of matrices.
        linear_sum_assignment(Context::cuda(), batch.view(costs.data(), kDevice), of_list.output(), on_host);
        EXPECT_EQ(of_list.values(), expected.values());
      }
    }
  }
}

TEST_F(AssignmentDeviceMemory, cuda_makes_problems_with_wrong_sizes_invalid) {
  Batch const batch(6, 5, 2);
  DeviceValues<float> const costs(batch.values);
  std::vector<std::int64_t> n(Batch::kProblems, 2);
  n[0] = -1;
  n[1] = 7;
  DeviceValues<std::int64_t> const rows(n);
  Results found(Batch::kProblems, 5, true);
  linear_sum_assignment(Context::cuda(), batch.view(costs.data(), kDevice), found.output(),
                        {.rows = {rows.data(), Batch::kProblems, 1, kDevice}});
  std::vector<std::vector<std::int64_t>> const values = found.values();
  for (std::int64_t t : {0, 1}) {
    EXPECT_EQ(values[2][t], static_cast<std::int64_t>(AssignmentStatus::invalid));
    for (std::int64_t k = 0; k < 5; ++k) EXPECT_EQ(values[0][t * 7 + k], -1);
  }
  EXPECT_EQ(values[2][2], static_cast<std::int64_t>(AssignmentStatus::optimal));
}

TEST_F(AssignmentDeviceMemory, cuda_graphs_record_batches_and_lists) {
  Batch const batch(20, 31, 3);
  DeviceValues<float> costs(batch.values);
  BatchView const view = batch.view(costs.data(), kDevice);
  std::vector<MatrixView> matrices;
  for (std::int64_t t = 0; t < Batch::kProblems; ++t)
    matrices.emplace_back(costs.data() + t * batch.distance, DataType::float32, 20 - t % 20, 1 + t % 31, batch.stride,
                          kDevice);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  {
    Context const context = Context::cuda({.stream = stream});
    Results found(Batch::kProblems, 20, true), of_list(Batch::kProblems, 20, true);
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    linear_sum_assignment(context, view, found.output());
    linear_sum_assignment(context, matrices, of_list.output());
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
    for (unsigned const seed : {3u, 4u}) {
      std::vector<float> const values = batch.make(seed);
      costs.write(values);
      check(cudaGraphLaunch(executable, stream));
      Results expected(Batch::kProblems, 20, false), expected_list(Batch::kProblems, 20, false);
      linear_sum_assignment(Context::cpu(), batch.view(values.data()), expected.output());
      std::vector<MatrixView> on_host;
      for (std::int64_t t = 0; t < Batch::kProblems; ++t)
        on_host.emplace_back(values.data() + t * batch.distance, DataType::float32, 20 - t % 20, 1 + t % 31,
                             batch.stride);
      linear_sum_assignment(Context::cpu(), on_host, expected_list.output());
      EXPECT_EQ(found.values(), expected.values());
      EXPECT_EQ(of_list.values(), expected_list.values());
    }
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(AssignmentDeviceMemory, cuda_takes_up_to_2048_columns) {
  std::mt19937 random(5);
  std::vector<double> costs(300 * 2048);
  std::generate(costs.begin(), costs.end(), [&] { return static_cast<double>(random() % 1000); });
  Assignment const expected = linear_sum_assignment(Context::cpu(), {costs.data(), 300, 2048});
  Assignment const found = linear_sum_assignment(Context::cuda(), {costs.data(), 300, 2048});
  EXPECT_EQ(found.column_indices, expected.column_indices);
  Assignment const tall = linear_sum_assignment(Context::cuda(), {costs.data(), 2048, 300});
  EXPECT_EQ(tall.row_indices, linear_sum_assignment(Context::cpu(), {costs.data(), 2048, 300}).row_indices);
  try {
    linear_sum_assignment(Context::cuda(), {costs.data(), 1, 2049});
    FAIL() << "no error";
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "cost: is 1 x 2049; on CUDA a matrix must be at most 2048 x 2048");
  }
}

}  // namespace
}  // namespace monge::oracle
