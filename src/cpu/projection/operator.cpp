#include "cpu/projection/operator.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "cpu/projection/range.hpp"
#include "cpu/runtime/memory.hpp"

namespace monge::cpu {
namespace {

std::int64_t groups_of(std::int64_t size) {
  return (size + kProjectionLanes - 1) / kProjectionLanes;
}

/// Calls function(first, last, thread) for parts of [0, size) that start at multiples of kProjectionLanes.
template <class Function>
void for_each_range(std::int64_t size, int threads, Function&& function) {
  std::int64_t const groups = groups_of(size);
  on_threads(threads, [&](int thread) {
    std::int64_t const begin = groups * thread / threads, end = groups * (thread + 1) / threads;
    function(begin * kProjectionLanes, std::min(size, end * kProjectionLanes), thread);
  });
}

void run(ProjectionProblem const& problem, int most, bool backward, ProjectionRange const& whole) {
  int const threads = static_cast<int>(std::min<std::int64_t>(most, groups_of(problem.batch)));
  std::size_t const floats = projection_scratch(problem, backward);
  AlignedArray<float> const scratch = aligned_array<float>(static_cast<std::int64_t>(floats) * threads);
  for_each_range(problem.batch, threads, [&](std::int64_t first, std::int64_t last, int thread) {
    ProjectionRange range = whole;
    range.first = first;
    range.last = last;
    range.scratch = scratch.get() + floats * to_size(thread);
    backward ? project_backward_range(range) : project_range(range);
  });
}

/// Tokens of a part. Sums over tokens add parts in order, for any number of threads.
constexpr std::int64_t kTokens = 256;

float sigmoid(float x) {
  return 1 / (1 + std::exp(-x));
}
/// The map of column k of the mixes: 0 is pre, 1 is post, 2 is res.
int map_of(int k, int streams) {
  return std::min(k / streams, 2);
}

/// Tokens [first, first + count) of mixes: scale * mixes + base, and the logits of res apart.
struct MhcPart {
  std::int64_t first, count;
  std::vector<float> z, logits;

  MhcPart(MhcArrays const& arrays, std::int64_t part)
      : first(part * kTokens),
        count(std::min(kTokens, arrays.tokens - first)),
        z(to_size(count * arrays.columns())),
        logits(to_size(count * arrays.streams * arrays.streams)) {
    int const streams = arrays.streams, columns = arrays.columns();
    for (std::int64_t t = 0; t < count; ++t) {
      float const* const mix = arrays.mixes + (first + t) * arrays.mixes_stride;
      float* const own = z.data() + t * columns;
      for (int k = 0; k < columns; ++k) own[k] = std::fma(arrays.scale[map_of(k, streams)], mix[k], arrays.base[k]);
      std::copy(own + std::ptrdiff_t{2} * streams, own + columns, logits.data() + t * streams * streams);
    }
  }
};

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
  int const streams = arrays.streams, columns = arrays.columns();
  std::size_t const floats = projection_scratch(problem, false);
  parallel_ranges(threads_, parts, [&](std::int64_t begin, std::int64_t end) {
    AlignedArray<float> const scratch = aligned_array<float>(static_cast<std::int64_t>(floats));
    for (std::int64_t index = begin; index < end; ++index) {
      MhcPart const part(arrays, index);
      for (std::int64_t t = 0; t < part.count; ++t) {
        float const* const z = part.z.data() + t * columns;
        std::int64_t const to = (part.first + t) * streams;
        for (int k = 0; k < streams; ++k) out.pre[to + k] = sigmoid(z[k]) + arrays.pre_epsilon;
        for (int k = 0; k < streams; ++k) out.post[to + k] = arrays.post_factor * sigmoid(z[streams + k]);
      }
      project_range({&problem,
                     BatchView(part.logits.data(), part.count, streams, streams),
                     {},
                     MutableBatchView(out.res + part.first * streams * streams, part.count, streams, streams),
                     nullptr,
                     0,
                     part.count,
                     scratch.get()});
    }
  });
}

void Projection::mhc_backward(ProjectionProblem const& problem, MhcArrays const& arrays,
                              MhcGradients const& gradients) const {
  std::int64_t const parts = (arrays.tokens + kTokens - 1) / kTokens;
  int const streams = arrays.streams, columns = arrays.columns(), cells = streams * streams;
  std::size_t const floats = projection_scratch(problem, true), entries = to_size(3 + columns);
  std::vector<double> sums(to_size(parts) * entries);
  parallel_ranges(threads_, parts, [&](std::int64_t begin, std::int64_t end) {
    AlignedArray<float> const scratch = aligned_array<float>(static_cast<std::int64_t>(floats));
    std::vector<float> d_logits(to_size(kTokens * cells));
    for (std::int64_t index = begin; index < end; ++index) {
      MhcPart const part(arrays, index);
      project_backward_range({&problem, BatchView(part.logits.data(), part.count, streams, streams),
                              BatchView(gradients.d_res + part.first * cells, part.count, streams, streams),
                              MutableBatchView(d_logits.data(), part.count, streams, streams), nullptr, 0, part.count,
                              scratch.get()});
      double* const sum = sums.data() + to_size(index) * entries;
      for (std::int64_t t = 0; t < part.count; ++t) {
        std::int64_t const token = part.first + t;
        float const* const mix = arrays.mixes + token * arrays.mixes_stride;
        float* const d_mix = gradients.d_mixes + token * gradients.d_mixes_stride;
        for (int k = 0; k < columns; ++k) {
          int const map = map_of(k, streams);
          float d;
          if (map < 2) {
            float const s = sigmoid(part.z[to_size(t * columns + k)]);
            float const g = map == 0 ? gradients.d_pre[token * streams + k]
                                     : arrays.post_factor * gradients.d_post[token * streams + k - streams];
            d = g * s * (1 - s);
          } else {
            d = d_logits[to_size(t * cells + k - std::int64_t{2} * streams)];
          }
          sum[map] += static_cast<double>(d) * mix[k];
          sum[3 + k] += d;
          d_mix[k] = arrays.scale[map] * d;
        }
      }
    }
  });
  for (std::size_t k = 0; k < entries; ++k) {
    double total = 0;
    for (std::size_t part = 0; part < to_size(parts); ++part) total += sums[part * entries + k];
    (k < 3 ? gradients.d_scale[k] : gradients.d_base[k - 3]) = static_cast<float>(total);
  }
}

}  // namespace monge::cpu
