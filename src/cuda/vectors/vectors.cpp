#include "cuda/vectors/vectors.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/numbers.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/vectors/kernels.hpp"

namespace monge::cuda {

DeviceVectorOperations::DeviceVectorOperations(SharedRuntime runtime, std::int64_t n, std::int64_t m)
    : VectorOperations(n, m), runtime_(std::move(runtime)) {}

std::unique_ptr<Vector> DeviceVectorOperations::zeros(std::int64_t rows, std::int64_t width) const {
  DeviceGuard const guard(runtime_->index());
  checked_size("points", rows * width);
  auto result = std::make_unique<DeviceVector>(runtime_, rows, width);
  MONGE_CUDA_TRY(cudaMemsetAsync(result->data(), 0, to_size(result->values.bytes()), runtime_->stream()));
  return result;
}

void DeviceVectorOperations::read(MatrixView from, Vector& to) const {
  DeviceGuard const guard(runtime_->index());
  DeviceArray<unsigned char> staging;
  DeviceVector& vector = on_device(to);
  load_vector(upload(runtime_, from, staging), vector.size(), static_cast<int>(vector.width()), nullptr, vector.data(),
              runtime_->stream());
  vector.typical = 0;
}

void DeviceVectorOperations::write(Vector const& from, MutableMatrixView to) const {
  DeviceGuard const guard(runtime_->index());
  Output out(runtime_, to);
  DeviceVector const& vector = on_device(from);
  store_vector(out.view(), vector.size(), static_cast<int>(vector.width()), vector.data(), nullptr, runtime_->stream());
  out.finish();
}

void DeviceVectorOperations::combine(std::span<Term const> terms, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector& result = on_device(out);
  CombineArguments arguments{result.size(), static_cast<int>(terms.size()), {}, result.data()};
  auto const step = [&](Vector const& times) { return static_cast<int>(result.width() / times.width()); };
  double typical = 0;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    Term const& term = terms[k];
    arguments.terms[k] = {term.factor, term.vector ? on_device(*term.vector).data() : nullptr, nullptr};
    if (term.times) arguments.terms[k].times = on_device(*term.times).data();
    if (term.times) arguments.terms[k].step = step(*term.times);
    if (!term.times) typical += term.factor * (term.vector ? on_device(*term.vector).typical : 1);
  }
  cuda::combine(arguments, runtime_->stream());
  result.typical = typical;
}

void DeviceVectorOperations::concatenate(std::span<Term const> terms, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector& result = on_device(out);
  std::int64_t first = 0;
  for (Term const& term : terms) {
    DeviceVector const& from = on_device(*term.vector);
    place_columns(from.size(), static_cast<int>(from.width()), from.data(), term.factor, result.data() + first,
                  static_cast<int>(result.width()), runtime_->stream());
    first += from.width();
  }
  result.typical = 0;
}

void DeviceVectorOperations::reciprocal(Vector const& in, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector& result = on_device(out);
  cuda::reciprocal(result.size(), on_device(in).data(), result.data(), runtime_->stream());
  result.typical = 0;
}

void DeviceVectorOperations::exp_difference(Vector const& weight, Vector const& first, Vector const& second,
                                            double scale, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  cuda::exp_difference(on_device(out).size(), on_device(weight).data(), on_device(first).data(),
                       on_device(second).data(), scale, written(&out), runtime_->stream());
}

void DeviceVectorOperations::row_dots(Vector const& first, Vector const& second, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector const& left = on_device(first);
  DeviceVector& result = on_device(out);
  cuda::row_dots(static_cast<int>(left.rows()), static_cast<int>(left.width()), left.data(), on_device(second).data(),
                 result.data(), runtime_->stream());
  result.typical = 0;
}

void DeviceVectorOperations::dots(std::span<std::pair<Vector const*, Vector const*> const> pairs,
                                  std::span<double> out) const {
  if (pairs.empty()) return;
  DeviceGuard const guard(runtime_->index());
  DotArguments arguments{};
  arguments.count = static_cast<int>(pairs.size());
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    arguments.size[k] = on_device(*pairs[k].first).size();
    arguments.parts = std::max(arguments.parts, reduction_parts(arguments.size[k]));
    arguments.first[k] = on_device(*pairs[k].first).data();
    arguments.second[k] = on_device(*pairs[k].second).data();
  }
  int const parts = arguments.parts;
  arguments.partials = partials(std::ssize(pairs) * parts);
  cuda::dots(arguments, runtime_->stream());
  std::vector<double> const partials = download(*runtime_, partials_.data(), std::ssize(pairs) * parts);
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    auto const first = partials.begin() + static_cast<std::ptrdiff_t>(k) * parts;
    out[k] = std::accumulate(first, first + parts, 0.0);
  }
}

double* DeviceVectorOperations::partials(std::int64_t count) const {
  if (partials_.size() < count) partials_ = DeviceArray<double>(runtime_, count);
  return partials_.data();
}

VectorNorms DeviceVectorOperations::norms(Vector const& vector) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector const& values = on_device(vector);
  if (values.size() == 0) return {};
  int const parts = reduction_parts(values.size());
  cuda::norms(values.size(), values.data(), partials(4 * std::int64_t{parts}), runtime_->stream());
  std::vector<double> const found = download(*runtime_, partials_.data(), 4 * std::int64_t{parts});
  VectorNorms norms{.least = found[2], .largest = found[3]};
  for (std::size_t k = 0; k < found.size(); k += 4) {
    norms.l1 += found[k];
    norms.l2 += found[k + 1];
    norms.least = std::min(norms.least, found[k + 2]);
    norms.largest = std::max(norms.largest, found[k + 3]);
  }
  norms.l2 = std::sqrt(norms.l2);
  return norms;
}

}  // namespace monge::cuda
