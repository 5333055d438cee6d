#include "cpu/vectors.hpp"

#include "core/compensated_sum.hpp"
#include "core/strided.hpp"

namespace monge::cpu {

std::unique_ptr<Vector> HostVectorOperations::make(Side side) const {
  return std::make_unique<HostVector>(side == Side::rows ? n_ : m_);
}

void HostVectorOperations::read(VectorView from, Vector& to) const {
  HostVector& target = on_host(to);
  read_vector(from, [&](std::int64_t i, double value) { target[i] = value; });
}

void HostVectorOperations::write(Vector const& from, MutableVectorView to) const {
  write_vector(to, [&](std::int64_t i) { return on_host(from)[i]; });
}

void HostVectorOperations::combine(std::span<Term const> terms, Vector& out) const {
  HostVector& target = on_host(out);
  for (std::int64_t i = 0; i < target.size(); ++i) {
    double sum = 0;
    for (Term const& term : terms) {
      double const value = term.factor * on_host(*term.vector)[i];
      sum += term.times == nullptr ? value : value * on_host(*term.times)[i];
    }
    target[i] = sum;
  }
}

void HostVectorOperations::reciprocal(Vector const& in, Vector& out) const {
  HostVector const& source = on_host(in);
  HostVector& target = on_host(out);
  for (std::int64_t i = 0; i < target.size(); ++i) target[i] = source[i] == 0 ? 0.0 : 1 / source[i];
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

}  // namespace monge::cpu
