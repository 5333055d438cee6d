#include <algorithm>

#include "core/numbers.hpp"
#include "cuda/assignment/shortest_paths.cuh"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {
namespace {

/// `rows` and `columns` are the most of any problem, transposed or not.
template <class T, class Source>
void launch(Source const& source, std::int64_t problems, int rows, int columns, bool maximize,
            AssignmentResults const& results, cudaStream_t stream) {
  int const shorter = std::min(rows, columns), longer = std::max(rows, columns);
  int const threads = std::max(1, (longer + 32 * kColumns - 1) / (32 * kColumns)) * 32;
  launch_chained(assign_kernel<T, Source>, static_cast<int>(problems), threads,
                 AssignmentMemory::bytes(shorter, longer), stream, source, results, maximize);
}

template <class Source>
void launch(DataType type, Source const& source, std::int64_t problems, int rows, int columns, bool maximize,
            AssignmentResults const& results, cudaStream_t stream) {
  if (problems == 0) return;
  auto const of_type = type == DataType::float32 ? launch<float, Source> : launch<double, Source>;
  of_type(source, problems, rows, columns, maximize, results, stream);
}

}  // namespace

void assign_batch(AssignmentBatch const& batch, std::int64_t problems, DataType type, bool maximize,
                  AssignmentResults const& results, cudaStream_t stream) {
  launch(type, batch, problems, batch.first.rows, batch.first.columns, maximize, results, stream);
}

void assign_list(std::span<AssignmentMatrix const> matrices, DataType type, bool maximize,
                 AssignmentResults const& results, cudaStream_t stream) {
  AssignmentList list;
  for (std::int64_t first = 0; first < std::ssize(matrices); first += AssignmentList::kMost) {
    std::int64_t const count = std::min(AssignmentList::kMost, std::ssize(matrices) - first);
    auto const part = matrices.subspan(to_size(first), to_size(count));
    int shorter = 0, longer = 0;
    for (AssignmentMatrix const& matrix : part) {
      shorter = std::max(shorter, std::min(matrix.rows, matrix.columns));
      longer = std::max(longer, std::max(matrix.rows, matrix.columns));
    }
    std::copy(part.begin(), part.end(), list.matrices);
    launch(type, list, count, shorter, longer, maximize, results.from(first), stream);
  }
}

}  // namespace monge::cuda
