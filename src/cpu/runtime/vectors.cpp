#include "cpu/runtime/vectors.hpp"

#include <algorithm>
#include <cmath>

#include "core/compensated_sum.hpp"
#include "core/strided.hpp"

namespace monge::cpu {

std::unique_ptr<Vector> HostVectorOperations::zeros(std::int64_t rows, std::int64_t width) const {
  return std::make_unique<HostVector>(rows, width);
}

void HostVectorOperations::read(MatrixView from, Vector& to) const {
  HostVector& target = on_host(to);
  with_data(from, [&](auto const* data) {
    for (std::int64_t place = 0, e = 0; place < from.rows(); ++place) {
      std::int64_t const i = orders_.point(to.side(), place);
      for (std::int64_t p = 0; p < from.columns(); ++p, ++e) target[e] = data[i * from.row_stride() + p];
    }
  });
}

void HostVectorOperations::write(Vector const& from, MutableMatrixView to) const {
  HostVector const& source = on_host(from);
  with_data(to, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for (std::int64_t place = 0, e = 0; place < to.rows(); ++place) {
      std::int64_t const i = orders_.point(from.side(), place);
      for (std::int64_t p = 0; p < to.columns(); ++p, ++e) data[i * to.row_stride() + p] = static_cast<T>(source[e]);
    }
  });
}

void HostVectorOperations::combine(std::span<Term const> terms, Vector& out) const {
  HostVector& target = on_host(out);
  std::int64_t const width = target.width();
  auto const element = [&](Term const& term, std::int64_t i, std::int64_t e) {
    double const value = term.vector == nullptr ? term.factor : term.factor * on_host(*term.vector)[e];
    return term.times == nullptr ? value : value * on_host(*term.times)[on_host(*term.times).width() == 1 ? i : e];
  };
  // A block of the sum stays in cache while its terms are added one by one.
  constexpr std::int64_t kBlock = 256;
  double sum[kBlock];
  for (std::int64_t first = 0; first < target.size(); first += kBlock) {
    std::int64_t const count = std::min(kBlock, target.size() - first);
    std::fill_n(sum, count, 0.0);
    for (Term const& term : terms) {
      if (term.vector != nullptr && term.times == nullptr) {
        double const* const values = on_host(*term.vector).values().data() + first;
        for (std::int64_t k = 0; k < count; ++k) sum[k] += term.factor * values[k];
      } else {
        for (std::int64_t k = 0; k < count; ++k) sum[k] += element(term, (first + k) / width, first + k);
      }
    }
    std::copy_n(sum, count, target.values().data() + first);
  }
}

void HostVectorOperations::concatenate(std::span<Term const> terms, Vector& out) const {
  HostVector& target = on_host(out);
  for (std::int64_t i = 0, e = 0; i < target.rows(); ++i) {
    for (Term const& term : terms) {
      HostVector const& from = on_host(*term.vector);
      for (std::int64_t p = 0; p < from.width(); ++p, ++e) target[e] = term.factor * from[i * from.width() + p];
    }
  }
}

void HostVectorOperations::reciprocal(Vector const& in, Vector& out) const {
  HostVector const& source = on_host(in);
  HostVector& target = on_host(out);
  for (std::int64_t i = 0; i < target.size(); ++i) target[i] = reciprocal_or_zero(source[i]);
}

void HostVectorOperations::exp_difference(Vector const& weight, Vector const& first, Vector const& second, double scale,
                                          Vector& out) const {
  HostVector const &w = on_host(weight), &x = on_host(first), &y = on_host(second);
  HostVector& target = on_host(out);
  for (std::int64_t i = 0; i < target.size(); ++i) target[i] = w[i] > 0 ? w[i] * std::exp((x[i] - y[i]) / scale) : 0.0;
}

void HostVectorOperations::row_dots(Vector const& first, Vector const& second, Vector& out) const {
  HostVector const& left = on_host(first);
  HostVector const& right = on_host(second);
  HostVector& target = on_host(out);
  for (std::int64_t i = 0, e = 0; i < left.rows(); ++i) {
    double sum = 0;
    for (std::int64_t p = 0; p < left.width(); ++p, ++e) sum += left[e] * right[e];
    target[i] = sum;
  }
}

void HostVectorOperations::dots(std::span<std::pair<Vector const*, Vector const*> const> pairs,
                                std::span<double> out) const {
  for (std::size_t k = 0; k < pairs.size(); ++k) {
    HostVector const& first = on_host(*pairs[k].first);
    HostVector const& second = on_host(*pairs[k].second);
    CompensatedSum sum;
    for (std::int64_t i = 0; i < first.size(); ++i) sum.add(first[i] * second[i]);
    out[k] = sum.value();
  }
}

VectorNorms HostVectorOperations::norms(Vector const& vector) const {
  std::vector<double> const& values = on_host(vector).values();
  if (values.empty()) return {};
  CompensatedSum sum, squares;
  VectorNorms norms{.least = values[0], .largest = values[0]};
  for (double const value : values) {
    sum.add(std::abs(value));
    squares.add(value * value);
    norms.least = std::min(norms.least, value);
    norms.largest = std::max(norms.largest, value);
  }
  norms.l1 = sum.value();
  norms.l2 = std::sqrt(squares.value());
  return norms;
}

}  // namespace monge::cpu
