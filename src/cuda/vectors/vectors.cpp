#include "cuda/vectors/vectors.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/geometry/costs.hpp"
#include "cuda/vectors/kernels.hpp"

namespace monge::cuda {

DeviceVectorOperations::DeviceVectorOperations(SharedRuntime runtime, std::int64_t n, std::int64_t m)
    : runtime_(std::move(runtime)), sizes_{n, m} {}

std::unique_ptr<Vector> DeviceVectorOperations::zeros(std::int64_t rows, std::int64_t width) const {
  DeviceGuard const guard(runtime_->index());
  checked_size("points", rows * width);
  auto result = std::make_unique<DeviceVector>(runtime_, rows, static_cast<int>(width));
  MONGE_CUDA_TRY(
      cudaMemsetAsync(result->data(), 0, static_cast<std::size_t>(result->values.bytes()), runtime_->stream()));
  return result;
}

std::unique_ptr<Vector> DeviceVectorOperations::make(Side side, std::int64_t width) const {
  return zeros(sizes_[side == Side::rows ? 0 : 1], width);
}

std::unique_ptr<Vector> DeviceVectorOperations::make_like(Vector const& vector) const {
  return zeros(on_device(vector).rows(), on_device(vector).width);
}

MatrixView DeviceVectorOperations::view(Vector const& vector) const {
  DeviceVector const& of = on_device(vector);
  return {of.data(), DataType::float64, of.rows(), of.width, of.width, {DeviceType::cuda, runtime_->index()}};
}

MutableMatrixView DeviceVectorOperations::view(Vector& vector) const {
  DeviceVector const& of = on_device(vector);
  return {of.data(), DataType::float64, of.rows(), of.width, of.width, {DeviceType::cuda, runtime_->index()}};
}

void DeviceVectorOperations::read(MatrixView from, Vector& to) const {
  DeviceGuard const guard(runtime_->index());
  DeviceArray<unsigned char> staging;
  DeviceVector& vector = on_device(to);
  load_vector(upload(runtime_, from, staging), vector.size(), vector.width, nullptr, vector.data(), runtime_->stream());
  vector.typical = 0;
}

void DeviceVectorOperations::write(Vector const& from, MutableMatrixView to) const {
  DeviceGuard const guard(runtime_->index());
  Output out(runtime_, to);
  DeviceVector const& vector = on_device(from);
  store_vector(out.view(), vector.size(), vector.width, vector.data(), nullptr, runtime_->stream());
  out.finish();
}

void DeviceVectorOperations::combine(std::span<Term const> terms, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector& result = on_device(out);
  CombineArguments arguments{result.size(), static_cast<int>(terms.size()), {}, result.data()};
  auto const step = [&](Vector const& times) { return result.width / on_device(times).width; };
  double typical = 0;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    Term const& term = terms[k];
    DeviceVector const& vector = on_device(*term.vector);
    arguments.terms[k] = {term.factor, vector.data(), nullptr};
    if (term.times) arguments.terms[k].times = on_device(*term.times).data();
    if (term.times) arguments.terms[k].step = step(*term.times);
    if (!term.times) typical += term.factor * vector.typical;
  }
  cuda::combine(arguments, runtime_->stream());
  result.typical = typical;
}

void DeviceVectorOperations::reciprocal(Vector const& in, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector& result = on_device(out);
  cuda::reciprocal(result.size(), on_device(in).data(), result.data(), runtime_->stream());
  result.typical = 0;
}

void DeviceVectorOperations::row_dots(Vector const& first, Vector const& second, Vector& out) const {
  DeviceGuard const guard(runtime_->index());
  DeviceVector const& left = on_device(first);
  DeviceVector& result = on_device(out);
  cuda::row_dots(left.rows(), left.width, left.data(), on_device(second).data(), result.data(), runtime_->stream());
  result.typical = 0;
}

void DeviceVectorOperations::dots(std::span<std::pair<Vector const*, Vector const*> const> pairs,
                                  std::span<double> out) const {
  if (pairs.empty()) return;
  DeviceGuard const guard(runtime_->index());
  int const size = on_device(*pairs[0].first).size();
  int const parts = dot_parts(size);
  if (partials_.size() < static_cast<std::int64_t>(kMostDots) * parts)
    partials_ = DeviceArray<double>(runtime_, static_cast<std::int64_t>(kMostDots) * parts);
  DotArguments arguments{size, static_cast<int>(pairs.size()), {}, {}, partials_.data()};
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    arguments.first[k] = on_device(*pairs[k].first).data();
    arguments.second[k] = on_device(*pairs[k].second).data();
  }
  cuda::dots(arguments, runtime_->stream());
  std::vector<double> const partials =
      download(*runtime_, partials_.data(), static_cast<std::int64_t>(pairs.size()) * parts);
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    auto const first = partials.begin() + static_cast<std::ptrdiff_t>(k) * parts;
    out[k] = std::accumulate(first, first + parts, 0.0);
  }
}

}  // namespace monge::cuda
