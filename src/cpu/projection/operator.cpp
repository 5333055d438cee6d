#include "cpu/projection/operator.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

#include "cpu/projection/range.hpp"

namespace monge::cpu {
namespace {

struct AlignedDelete {
  void operator()(float* pointer) const { ::operator delete[](pointer, std::align_val_t{64}); }
};
using AlignedFloats = std::unique_ptr<float[], AlignedDelete>;

AlignedFloats aligned_floats(std::size_t count) {
  return AlignedFloats(static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t{64})));
}

/// Calls function(first, last, thread) for parts of [0, size) that start at multiples of kProjectionLanes.
template <class Function>
void for_each_range(std::int64_t size, int threads, Function&& function) {
  std::int64_t const groups = (size + kProjectionLanes - 1) / kProjectionLanes;
  int const used = static_cast<int>(std::min<std::int64_t>(threads, groups));
#pragma omp parallel num_threads(used) if (used > 1)
  {
    int const thread = omp_get_thread_num(), count = omp_get_num_threads();
    std::int64_t const begin = groups * thread / count, end = groups * (thread + 1) / count;
    function(begin * kProjectionLanes, std::min(size, end * kProjectionLanes), thread);
  }
}

void run(ProjectionProblem const& problem, int threads, bool backward, ProjectionRange const& whole) {
  std::size_t const floats = projection_scratch(problem, backward);
  AlignedFloats const scratch = aligned_floats(floats * static_cast<std::size_t>(threads));
  for_each_range(problem.batch, threads, [&](std::int64_t first, std::int64_t last, int thread) {
    ProjectionRange range = whole;
    range.first = first;
    range.last = last;
    range.scratch = scratch.get() + floats * static_cast<std::size_t>(thread);
    backward ? project_backward_range(range) : project_range(range);
  });
}

constexpr std::int64_t kTokens = 256;  // Of a part. Sums over tokens add parts in order, for any number of threads.

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}
int scale_of(int k) {
  return k < 4 ? 0 : k < 8 ? 1 : 2;
}

/// scale * mixes + base of one token.
std::array<float, 24> mapped(MhcArrays const& arrays, std::int64_t token) {
  std::array<float, 24> z;
  float const* const mix = arrays.mixes + token * arrays.mixes_stride;
  for (int k = 0; k < 24; ++k)
    z[static_cast<std::size_t>(k)] = std::fma(arrays.scale[scale_of(k)], mix[k], arrays.base[k]);
  return z;
}

}  // namespace

void Projection::forward(ProjectionProblem const& problem, BatchView const& logits, MutableBatchView const& out) const {
  run(problem, threads_, false, {&problem, logits, {}, out, nullptr, 0, 0, nullptr});
}

void Projection::backward(ProjectionProblem const& problem, BatchView const& logits, BatchView const& d_out,
                          MutableBatchView const& d_logits, float* d_dustbin_score) const {
  run(problem, threads_, true, {&problem, logits, d_out, d_logits, d_dustbin_score, 0, 0, nullptr});
}

void Projection::mhc_forward(ProjectionProblem const& problem, MhcArrays const& arrays, MhcOutputs const& out) const {
  std::int64_t const parts = (arrays.tokens + kTokens - 1) / kTokens;
  std::size_t const floats = projection_scratch(problem, false);
#pragma omp parallel num_threads(threads_) if (parts > 1)
  {
    AlignedFloats const scratch = aligned_floats(floats);
    std::vector<float> logits(kTokens * 16);
#pragma omp for schedule(static)
    for (std::int64_t part = 0; part < parts; ++part) {
      std::int64_t const first = part * kTokens, count = std::min(kTokens, arrays.tokens - first);
      for (std::int64_t t = 0; t < count; ++t) {
        auto const z = mapped(arrays, first + t);
        for (int k = 0; k < 4; ++k)
          out.pre[(first + t) * 4 + k] = sigmoid(z[static_cast<std::size_t>(k)]) + arrays.pre_epsilon;
        for (int k = 0; k < 4; ++k)
          out.post[(first + t) * 4 + k] = arrays.post_factor * sigmoid(z[static_cast<std::size_t>(4 + k)]);
        std::copy(z.begin() + 8, z.end(), logits.begin() + t * 16);
      }
      project_range({&problem,
                     BatchView(logits.data(), count, 4, 4),
                     {},
                     MutableBatchView(out.res + first * 16, count, 4, 4),
                     nullptr,
                     0,
                     count,
                     scratch.get()});
    }
  }
}

void Projection::mhc_backward(ProjectionProblem const& problem, MhcArrays const& arrays,
                              MhcGradients const& gradients) const {
  std::int64_t const parts = (arrays.tokens + kTokens - 1) / kTokens;
  std::size_t const floats = projection_scratch(problem, true);
  std::vector<std::array<double, 27>> sums(static_cast<std::size_t>(parts), std::array<double, 27>{});
#pragma omp parallel num_threads(threads_) if (parts > 1)
  {
    AlignedFloats const scratch = aligned_floats(floats);
    std::vector<float> logits(kTokens * 16), d_logits(kTokens * 16);
#pragma omp for schedule(static)
    for (std::int64_t part = 0; part < parts; ++part) {
      std::int64_t const first = part * kTokens, count = std::min(kTokens, arrays.tokens - first);
      for (std::int64_t t = 0; t < count; ++t) {
        auto const z = mapped(arrays, first + t);
        std::copy(z.begin() + 8, z.end(), logits.begin() + t * 16);
      }
      project_backward_range({&problem, BatchView(logits.data(), count, 4, 4),
                              BatchView(gradients.d_res + first * 16, count, 4, 4),
                              MutableBatchView(d_logits.data(), count, 4, 4), nullptr, 0, count, scratch.get()});
      auto& sum = sums[static_cast<std::size_t>(part)];
      for (std::int64_t t = 0; t < count; ++t) {
        auto const z = mapped(arrays, first + t);
        float const* const mix = arrays.mixes + (first + t) * arrays.mixes_stride;
        float* const d_mix = gradients.d_mixes + (first + t) * gradients.d_mixes_stride;
        for (int k = 0; k < 24; ++k) {
          float d;
          if (k < 8) {
            float const s = sigmoid(z[static_cast<std::size_t>(k)]);
            float const g = k < 4 ? gradients.d_pre[(first + t) * 4 + k]
                                  : arrays.post_factor * gradients.d_post[(first + t) * 4 + k - 4];
            d = g * s * (1 - s);
          } else {
            d = d_logits[static_cast<std::size_t>(t * 16 + k - 8)];
          }
          sum[static_cast<std::size_t>(scale_of(k))] += static_cast<double>(d) * mix[k];
          sum[static_cast<std::size_t>(3 + k)] += d;
          d_mix[k] = arrays.scale[scale_of(k)] * d;
        }
      }
    }
  }
  std::array<double, 27> total{};
  for (auto const& sum : sums)
    for (std::size_t k = 0; k < total.size(); ++k) total[k] += sum[k];
  for (std::size_t k = 0; k < 3; ++k) gradients.d_scale[k] = static_cast<float>(total[k]);
  for (std::size_t k = 0; k < 24; ++k) gradients.d_base[k] = static_cast<float>(total[3 + k]);
}

}  // namespace monge::cpu
