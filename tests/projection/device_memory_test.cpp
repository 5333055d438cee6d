// Batches in device memory, among them one whose elements are numbered past 2^31. Built where there is a CUDA toolkit.
#include <algorithm>
#include <cstddef>

#include "cpu/projection/elements.hpp"
#include "oracle/cuda_check.hpp"
#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionDeviceMemory : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, ProjectionDeviceMemory, testing::Values(Target{DeviceType::cuda, Precision::float32}),
                         target_name);

/// A batch of 4 x 4 matrices, every byte the same at first.
class DeviceBatch {
 public:
  DeviceBatch(std::int64_t batch, DataType type, int byte) : batch_(batch), type_(type) {
    check(cudaMalloc(&data_, bytes(batch)));
    check(cudaMemset(data_, byte, bytes(batch)));
    check(cudaDeviceSynchronize());
  }
  DeviceBatch(DeviceBatch const&) = delete;
  DeviceBatch& operator=(DeviceBatch const&) = delete;
  ~DeviceBatch() { cudaFree(data_); }

  MutableBatchView view() const {
    return {data_, type_, batch_, 4, 4, kContiguous, kContiguous, {DeviceType::cuda, 0}};
  }
  void write(std::int64_t first, BatchView const& elements) {
    check(cudaMemcpy(at(first), elements.data(), bytes(elements.batch()), cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());
  }
  std::vector<std::byte> read(std::int64_t first, std::int64_t count) const {
    check(cudaDeviceSynchronize());
    std::vector<std::byte> elements(bytes(count));
    check(cudaMemcpy(elements.data(), at(first), elements.size(), cudaMemcpyDeviceToHost));
    return elements;
  }

 private:
  std::size_t bytes(std::int64_t matrices) const { return static_cast<std::size_t>(matrices * 16 * size_of(type_)); }
  std::byte* at(std::int64_t matrix) const { return static_cast<std::byte*>(data_) + bytes(matrix); }
  std::int64_t batch_;
  DataType type_;
  void* data_ = nullptr;
};

/// Seven matrices give the same bits alone as at the start of `batch`, across element 2^31 and at its end.
void expect_bits_of_a_small_batch(Context const& context, std::int64_t batch, DataType type) {
  ProjectionCase const test{"few", projection_preset(ProjectionPreset::mhc_paper), 4, 4, 7, 1, type};
  Data const data(test);
  std::vector<std::byte> out(static_cast<std::size_t>(7 * 16 * size_of(type))), d_logits(out.size());
  project(context, data.logit_view(), {out.data(), type, 7, 4, 4}, test.options);
  project_backward(context, data.logit_view(), data.gradient_view(), {d_logits.data(), type, 7, 4, 4}, test.options);

  constexpr int kNaN = 0xff;
  std::vector<std::int64_t> places{0, batch - 7};
  if (std::int64_t const middle = (std::int64_t{1} << 27) - 3; middle + 7 <= batch - 7) places.push_back(middle);
  DeviceBatch logits(batch, type, 0), gradient(batch, type, 0), result(batch, type, kNaN);
  for (std::int64_t const place : places) {
    logits.write(place, data.logit_view());
    gradient.write(place, data.gradient_view());
  }
  project(context, logits.view(), result.view(), test.options);
  for (std::int64_t const place : places) EXPECT_EQ(result.read(place, 7), out) << "at " << place;
  std::vector<std::byte> quarters(static_cast<std::size_t>(16 * size_of(type)));
  for (int e = 0; e < 16; ++e) cpu::store_element(quarters.data(), type, e, 0.25f);
  EXPECT_EQ(result.read(batch - 8, 1), quarters) << "logits of 0";
  project_backward(context, logits.view(), gradient.view(), result.view(), test.options);
  for (std::int64_t const place : places) EXPECT_EQ(result.read(place, 7), d_logits) << "at " << place;
  DeviceBatch const zero(1, type, 0), of_zero(1, type, kNaN);
  project_backward(context, zero.view(), zero.view(), of_zero.view(), test.options);
  EXPECT_EQ(result.read(batch - 8, 1), of_zero.read(0, 1)) << "gradient of 0";
}

TEST_P(ProjectionDeviceMemory, GivesWhatHostMemoryGives) {
  for (DataType const type : {DataType::float32, DataType::bfloat16})
    expect_bits_of_a_small_batch(context(), 1000, type);
}

/// Device memory from an address that is a multiple of one element and of nothing larger.
class OddMemory {
 public:
  OddMemory(void const* elements, std::size_t bytes, std::size_t element) : bytes_(bytes), element_(element) {
    check(cudaMalloc(&data_, bytes + 2 * element));
    check(cudaMemset(data_, 0xff, bytes + 2 * element));
    if (elements != nullptr) check(cudaMemcpy(data(), elements, bytes, cudaMemcpyHostToDevice));
    check(cudaDeviceSynchronize());
  }
  OddMemory(OddMemory const&) = delete;
  OddMemory& operator=(OddMemory const&) = delete;
  ~OddMemory() { cudaFree(data_); }

  void* data() const { return static_cast<char*>(data_) + element_; }
  std::vector<float> read() const {
    check(cudaDeviceSynchronize());
    std::vector<float> values(bytes_ / sizeof(float));
    check(cudaMemcpy(values.data(), data(), bytes_, cudaMemcpyDeviceToHost));
    return values;
  }
  bool rest_is_untouched() const {
    std::vector<unsigned char> bytes(bytes_ + 2 * element_);
    check(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost));
    auto const poison = [](unsigned char byte) { return byte == 0xff; };
    return std::all_of(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(element_), poison) &&
           std::all_of(bytes.end() - static_cast<std::ptrdiff_t>(element_), bytes.end(), poison);
  }

 private:
  std::size_t bytes_, element_;
  void* data_ = nullptr;
};

TEST_P(ProjectionDeviceMemory, OddSizesAtOddAddresses) {
  for (DataType const type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
    for (int const size : {3, 4, 6, 7, 16, 30, 33, 71, 128, 131, 300}) {
      SCOPED_TRACE(std::string(name(type)) + " " + std::to_string(size));
      ProjectionCase const test{"odd", projection_preset(ProjectionPreset::mhc_paper), size, size, 37, 1, type};
      Data const data(test);
      auto const entries = static_cast<std::size_t>(test.batch * size * size);
      std::vector<float> out(entries), d_logits(entries);
      project(context(), data.logit_view(), {out.data(), test.batch, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), test.batch, size, size},
                       test.options);

      std::size_t const element = type == DataType::float32 ? 4 : 2;
      OddMemory const logits(data.logit_view().data(), entries * element, element);
      OddMemory const gradient(data.gradient_view().data(), entries * element, element);
      OddMemory const result(nullptr, entries * 4, 4), d_result(nullptr, entries * 4, 4);
      Device const device{DeviceType::cuda, 0};
      auto const view = [&](OddMemory const& memory, DataType of) {
        return MutableBatchView(memory.data(), of, test.batch, size, size, kContiguous, kContiguous, device);
      };
      project(context(), view(logits, type), view(result, DataType::float32), test.options);
      project_backward(context(), view(logits, type), view(gradient, type), view(d_result, DataType::float32),
                       test.options);
      // Other addresses may take other kernels. Both results are within their tolerance.
      float const largest = *std::max_element(d_logits.begin(), d_logits.end()),
                  terms = *std::max_element(data.gradient.begin(), data.gradient.end());
      std::vector<float> const actual = result.read(), d_actual = d_result.read();
      for (std::size_t e = 0; e < entries; ++e) {
        ASSERT_NEAR(actual[e], out[e], 2 * entry_tolerance(test) * out[e]) << "element " << e;
        ASSERT_NEAR(d_actual[e], d_logits[e], 2 * gradient_tolerance(largest, terms)) << "element " << e;
      }
      EXPECT_TRUE(result.rest_is_untouched() && d_result.rest_is_untouched());
    }
  }
}

void expect_bits_beyond_two_to_the_31(Context const& context, DataType type) {
  std::int64_t const batch = (std::int64_t{1} << 27) + 1000;
  std::size_t const needed = static_cast<std::size_t>(3 * 16 * size_of(type) * batch);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  if (free < needed + needed / 8)
    GTEST_SKIP() << "needs " << needed << " bytes of device memory; " << free << " are free";
  expect_bits_of_a_small_batch(context, batch, type);
}

TEST_P(ProjectionDeviceMemory, ElementsBeyondTwoToThe31) {
  expect_bits_beyond_two_to_the_31(context(), DataType::bfloat16);
}

/// The gradient of contiguous 4 x 4 matrices in large batches has a kernel of its own (kernels/ratio_backward.cuh).
TEST_P(ProjectionDeviceMemory, Float32ElementsBeyondTwoToThe31) {
  expect_bits_beyond_two_to_the_31(context(), DataType::float32);
}

}  // namespace
}  // namespace monge::oracle
