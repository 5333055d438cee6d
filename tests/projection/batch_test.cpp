// Whole batches. A matrix gives the same bits whatever its neighbours are, also beside hard ones, in empty batches and
// in very large ones.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/projection/elements.hpp"
#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionBatch : public BackendTest {};

TEST_P(ProjectionBatch, HardInputsStayInTheirMatrix) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (ProjectionPreset const preset :
       {ProjectionPreset::mhc_paper, ProjectionPreset::deepseek, ProjectionPreset::megatron, ProjectionPreset::blog,
        ProjectionPreset::gumbel_sinkhorn}) {
    for (int const size : {4, 5, 8, 16, 66, 129}) {
      std::size_t const cells = static_cast<std::size_t>(size * size);
      ProjectionCase const test{std::string(name(preset)), projection_preset(preset), size, size, 9};
      Data data(test);
      auto const at = [&](int t, int i, int j) -> float& {
        return data.logits[static_cast<std::size_t>(t) * cells + i * size + j];
      };
      std::vector<float> clean(cells * 9), out(cells * 9), d_clean(cells * 9), d_out(cells * 9);
      project(context(), data.logit_view(), {clean.data(), 9, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_clean.data(), 9, size, size},
                       test.options);
      at(1, 0, 1) = nan;
      for (int j = 0; j < size; ++j) at(3, 1, j) = -inf;
      for (std::size_t e = 0; e < cells; ++e) data.logits[5 * cells + e] += 500;  // exp() of these overflows.
      for (std::size_t e = 0; e < cells; ++e) data.logits[7 * cells + e] -= 30;
      project(context(), data.logit_view(), {out.data(), 9, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_out.data(), 9, size, size}, test.options);
      for (int const t : {0, 2, 4, 6, 8}) {
        EXPECT_EQ(std::memcmp(&clean[static_cast<std::size_t>(t) * cells], &out[static_cast<std::size_t>(t) * cells],
                              4 * cells),
                  0)
            << test.name << " " << size;
        EXPECT_EQ(std::memcmp(&d_clean[static_cast<std::size_t>(t) * cells],
                              &d_out[static_cast<std::size_t>(t) * cells], 4 * cells),
                  0)
            << test.name << " " << size;
      }
      EXPECT_TRUE(std::isnan(out[cells])) << test.name << " " << size;
      for (std::size_t e = 0; e < cells; ++e) {
        if (preset != ProjectionPreset::deepseek) {  // Its epsilon gives the row mass.
          EXPECT_TRUE(std::isfinite(out[3 * cells + e])) << test.name << " " << size;
          EXPECT_TRUE(std::isfinite(d_out[3 * cells + e])) << test.name << " " << size;
        }
        if (preset != ProjectionPreset::blog) {  // Its epsilon is relative to the size of the entries.
          EXPECT_NEAR(out[5 * cells + e], clean[5 * cells + e], 2e-4) << test.name << " " << size;
          EXPECT_NEAR(out[7 * cells + e], clean[7 * cells + e], 2e-5) << test.name << " " << size;
        }
      }
      if (preset != ProjectionPreset::deepseek) {
        for (int j = 0; j < size; ++j) EXPECT_EQ(out[3 * cells + static_cast<std::size_t>(size + j)], 0) << test.name;
      }
    }
  }
}

TEST_P(ProjectionBatch, BitsDoNotDependOnThePlaceInTheBatchOrTheRun) {
  for (int const size : {4, 8, 16, 30, 100, 140}) {
    ProjectionCase const test{"bits", projection_preset(ProjectionPreset::mhc_paper), size, size, 131, 3};
    Data const data(test);
    std::size_t const cells = static_cast<std::size_t>(size * size);
    std::vector<float> whole(cells * 131), again(whole.size()), single(cells);
    std::vector<float> d_whole(cells * 131), d_again(whole.size()), d_single(cells);
    for (auto* into : {&d_whole, &d_again})
      project_backward(context(), data.logit_view(), data.gradient_view(), {into->data(), 131, size, size},
                       test.options);
    EXPECT_EQ(std::memcmp(d_whole.data(), d_again.data(), 4 * d_whole.size()), 0);
    project(context(), data.logit_view(), {whole.data(), 131, size, size}, test.options);
    project(context(), data.logit_view(), {again.data(), 131, size, size}, test.options);
    EXPECT_EQ(std::memcmp(whole.data(), again.data(), 4 * whole.size()), 0);
    for (int const t : {0, 17, 130}) {
      project(context(), {data.logits.data() + static_cast<std::size_t>(t) * cells, 1, size, size},
              {single.data(), 1, size, size}, test.options);
      EXPECT_EQ(std::memcmp(single.data(), &whole[static_cast<std::size_t>(t) * cells], 4 * cells), 0) << size;
      project_backward(context(), {data.logits.data() + static_cast<std::size_t>(t) * cells, 1, size, size},
                       {data.gradient.data() + static_cast<std::size_t>(t) * cells, 1, size, size},
                       {d_single.data(), 1, size, size}, test.options);
      EXPECT_EQ(std::memcmp(d_single.data(), &d_whole[static_cast<std::size_t>(t) * cells], 4 * cells), 0) << size;
    }
  }
}

/// Matrices that settle after few iterations, after many or never, and one with a NaN: each gives the same bits alone
/// and beside the others.
TEST_P(ProjectionBatch, EachMatrixSettlesByItself) {
  float const nan = std::numeric_limits<float>::quiet_NaN();
  for (int const size : {16, 23, 32, 64, 100, 128}) {
    for (int const iterations : {20, 60}) {
      for (auto const order : {ProjectionOrder::rows_first, ProjectionOrder::columns_first}) {
        ProjectionCase test{"settles", projection_preset(ProjectionPreset::mhc_paper), size, size, 64};
        test.options.iterations = iterations;
        test.options.order = order;
        Data data(test);
        std::size_t const cells = static_cast<std::size_t>(size * size);
        for (std::size_t t = 0; t < 64; ++t)
          for (std::size_t e = 0; e < cells; ++e) data.logits[t * cells + e] *= 0.03f * static_cast<float>(t * 37 % 64);
        data.logits[20 * cells + 7] = nan;
        std::vector<float> together(cells * 64), alone(cells);
        project(context(), data.logit_view(), {together.data(), 64, size, size}, test.options);
        for (std::size_t t = 0; t < 64; ++t) {
          project(context(), {&data.logits[t * cells], 1, size, size}, {alone.data(), 1, size, size}, test.options);
          EXPECT_EQ(std::memcmp(alone.data(), &together[t * cells], 4 * cells), 0)
              << size << " " << iterations << " " << name(order) << " " << t;
        }
      }
    }
  }
}

/// Batches so large that a lane of a GPU takes matrix after matrix. They have wide matrices and NaN among them, an odd
/// and an even number of rounds, and lanes that go without a matrix in the last round.
TEST_P(ProjectionBatch, LargeBatchesGiveTheBitsOfSmallOnes) {
  for (auto const order : {ProjectionOrder::rows_first, ProjectionOrder::columns_first}) {
    for (int const iterations : {2, 3, 20}) {
      ProjectionCase test{"large", projection_preset(ProjectionPreset::mhc_paper), 4, 4, 150'001};
      test.options.order = order;
      test.options.iterations = iterations;
      Data data(test);
      auto const matrix = [](std::vector<float>& x, std::int64_t t) { return &x[static_cast<std::size_t>(16 * t)]; };
      for (std::int64_t t = 0; t < test.batch; t += 97)
        for (int e = 0; e < 16; ++e) matrix(data.logits, t)[e] *= 30;
      matrix(data.logits, 75'000)[5] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> d_logits(data.logits.size(), -1);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), test.batch, 4, 4},
                       test.options);
      constexpr std::int64_t kFew = 4000;
      std::vector<float> alone(16 * kFew);
      for (std::int64_t t = 0; t < test.batch; t += kFew) {
        std::int64_t const count = std::min(kFew, test.batch - t);
        project_backward(context(), {matrix(data.logits, t), count, 4, 4}, {matrix(data.gradient, t), count, 4, 4},
                         {alone.data(), count, 4, 4}, test.options);
        ASSERT_EQ(std::memcmp(alone.data(), matrix(d_logits, t), static_cast<std::size_t>(64 * count)), 0)
            << name(order) << " " << iterations << " " << t;
      }
    }
  }
}

TEST_P(ProjectionBatch, RowsThatOverflowExpAndEmptyMatrices) {
  float const inf = std::numeric_limits<float>::infinity();
  for (std::string_view const preset : {"deepseek", "megatron", "gumbel_sinkhorn"}) {
    for (int const size : {4, 7, 16}) {
      ProjectionCase const test{std::string(preset), projection_preset(preset), size, size, 4};
      Data data(test);
      std::size_t const cells = static_cast<std::size_t>(size * size);
      std::vector<float> clean(4 * cells), out(4 * cells), d_logits(4 * cells);
      project(context(), data.logit_view(), {clean.data(), 4, size, size}, test.options);
      float* const x = data.logits.data();
      for (int j = 0; j < size; ++j) x[size + j] += 500;            // A constant added to a row changes nothing.
      for (std::size_t e = 0; e < cells; ++e) x[cells + e] = -inf;  // No mass at all.
      for (int i = 0; i < size; ++i) x[2 * cells + static_cast<std::size_t>(i * size)] = -inf;  // No mass in a column.
      project(context(), data.logit_view(), {out.data(), 4, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), 4, size, size},
                       test.options);
      // float32 holds logits near 500 to 1.5e-5, which is the relative error of an entry.
      for (std::size_t e = 0; e < cells; ++e) EXPECT_NEAR(out[e], clean[e], 1e-4) << preset << " " << size;
      if (preset == "deepseek") continue;  // Its epsilon gives entries of -inf mass.
      for (std::size_t e = 0; e < cells; ++e) EXPECT_EQ(out[cells + e], 0) << preset << " " << size;
      for (std::size_t e = 0; e < cells; e += static_cast<std::size_t>(size))
        EXPECT_EQ(out[2 * cells + e], 0) << preset << " " << size;
      for (std::size_t e = 0; e < 4 * cells; ++e)
        EXPECT_TRUE(std::isfinite(out[e]) && std::isfinite(d_logits[e])) << preset << " " << size << " " << e;
    }
  }
}

TEST_P(ProjectionBatch, ElementsBeyondTwoToThe31) {
  // The stride is so large that elements are numbered past 2^31, beginning with the first of the second group of SIMD
  // lanes. The pages between the matrices are never written.
  std::int64_t const batch = 40, apart = (std::int64_t{1} << 26) + 8;
  std::size_t const bytes = static_cast<std::size_t>((batch - 1) * apart + 16) * 2;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for " << bytes << " bytes";
  ProjectionCase const test{"far", projection_preset(ProjectionPreset::mhc_paper), 4, 4, 40, 1, DataType::bfloat16};
  Data const data(test);
  for (std::int64_t t = 0; t < batch; ++t)
    std::copy_n(data.logit_bits.data() + 16 * t, 16, static_cast<std::uint16_t*>(memory) + t * apart);
  BatchView const far(memory, DataType::bfloat16, batch, 4, 4, apart);
  std::vector<float> near_out(640), far_out(640), near_d(640), far_d(640);
  project(context(), data.logit_view(), {near_out.data(), batch, 4, 4}, test.options);
  project(context(), far, {far_out.data(), batch, 4, 4}, test.options);
  EXPECT_EQ(near_out, far_out);
  project_backward(context(), data.logit_view(), data.gradient_view(), {near_d.data(), batch, 4, 4}, test.options);
  project_backward(context(), far, data.gradient_view(), {far_d.data(), batch, 4, 4}, test.options);
  EXPECT_EQ(near_d, far_d);
  munmap(memory, bytes);
}

TEST_P(ProjectionBatch, EmptyBatchesAndOutputsOfEitherType) {
  project(context(), BatchView(static_cast<float const*>(nullptr), 0, 4, 4),
          MutableBatchView(static_cast<float*>(nullptr), 0, 4, 4), {});
  project_backward(context(), BatchView(static_cast<float const*>(nullptr), 0, 4, 4),
                   BatchView(static_cast<float const*>(nullptr), 0, 4, 4),
                   MutableBatchView(static_cast<float*>(nullptr), 0, 4, 4), {});
  ProjectionCase const test{"half", projection_preset(ProjectionPreset::mhc_paper), 4, 4, 33, 1, DataType::bfloat16};
  Data const data(test);
  std::vector<std::uint16_t> half(16 * 33);
  std::vector<float> full(16 * 33);
  project(context(), data.logit_view(), {half.data(), DataType::bfloat16, 33, 4, 4}, test.options);
  project(context(), data.logit_view(), {full.data(), 33, 4, 4}, test.options);
  for (std::size_t e = 0; e < full.size(); ++e) EXPECT_EQ(half[e], cpu::to_bfloat16(full[e]));
}

TEST_P(ProjectionBatch, OutputsInWiderRowsOfAnyTypeLeaveTheRestAlone) {
  std::int64_t const batch = 37;
  for (DataType const type : {DataType::float32, DataType::bfloat16, DataType::float16}) {
    for (int const size : {4, 5, 16, 66}) {
      SCOPED_TRACE(std::string(name(type)) + " " + std::to_string(size));
      ProjectionCase const test{"strided", projection_preset(ProjectionPreset::mhc_paper), size, size, 37, 1, type};
      Data const data(test);
      std::int64_t const row = size + 3, matrix = size * row + 5;
      auto const entries = static_cast<std::size_t>(batch * size * size);
      std::vector<float> plain(entries), d_plain(entries);
      project(context(), data.logit_view(), {plain.data(), batch, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_plain.data(), batch, size, size},
                       test.options);
      std::vector<float> wide(static_cast<std::size_t>(batch * matrix)), d_wide(wide), d_out(wide);
      float const untouched = 7;  // Every type holds it exactly.
      for (std::int64_t e = 0; e < batch * matrix; ++e) {
        cpu::store_element(wide.data(), type, e, untouched);
        cpu::store_element(d_wide.data(), type, e, untouched);
        std::int64_t const t = e / matrix, i = e % matrix / row, j = e % matrix % row;
        bool const inside = i < size && j < size;
        cpu::store_element(d_out.data(), type, e, inside ? data.gradient[(t * size + i) * size + j] : NAN);
      }
      MutableBatchView const into(wide.data(), type, batch, size, size, matrix, row);
      MutableBatchView const d_into(d_wide.data(), type, batch, size, size, matrix, row);
      project(context(), data.logit_view(), into, test.options);
      project_backward(context(), data.logit_view(), {d_out.data(), type, batch, size, size, matrix, row}, d_into,
                       test.options);
      // Other strides may take other kernels. Both results are within their tolerance and rounded to the type.
      double const unit = type == DataType::float32 ? 0 : type == DataType::bfloat16 ? 0x1p-7 : 0x1p-10;
      auto const largest = [](std::vector<float> const& x) {
        return std::abs(
            *std::max_element(x.begin(), x.end(), [](float p, float q) { return std::abs(p) < std::abs(q); }));
      };
      double const d_allowed = 2 * gradient_tolerance(largest(d_plain), largest(data.gradient));
      for (std::int64_t e = 0; e < batch * matrix; ++e) {
        std::int64_t const t = e / matrix, i = e % matrix / row, j = e % matrix % row;
        float const value = cpu::load_element(wide.data(), type, e),
                    d_value = cpu::load_element(d_wide.data(), type, e);
        if (i >= size || j >= size) {
          ASSERT_EQ(value, untouched) << "matrix " << t << " " << i << ", " << j;
          ASSERT_EQ(d_value, untouched) << "matrix " << t << " " << i << ", " << j;
          continue;
        }
        double const expected = plain[(t * size + i) * size + j], d_expected = d_plain[(t * size + i) * size + j];
        ASSERT_NEAR(value, expected, (2 * entry_tolerance(test) + unit) * expected) << t << " " << i << ", " << j;
        ASSERT_NEAR(d_value, d_expected, d_allowed + unit * std::abs(d_expected)) << t << " " << i << ", " << j;
      }
    }
  }
}

MONGE_FOR_EACH_DEVICE(ProjectionBatch);

}  // namespace
}  // namespace monge::oracle
