// Vectors of all potentials: a part for the rows, and one for the columns.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <utility>
#include <vector>

#include "seam/vectors.hpp"

namespace monge {

struct PairTerm {
  double factor;
  VectorPair const* pair;
};

/// VectorOperations on both sides at once.
class PairOperations {
 public:
  explicit PairOperations(VectorOperations const& vectors) : vectors_(&vectors) {}

  VectorPair make() const { return {vectors_->make(Side::rows), vectors_->make(Side::columns)}; }
  void combine(std::initializer_list<PairTerm> pairs, VectorPair const& out) const {
    for (Side const side : kSides) vectors_->combine(terms(pairs, side), *out[side]);
  }
  /// The terms of one side.
  static std::vector<Term> terms(std::initializer_list<PairTerm> pairs, Side side) {
    std::vector<Term> result;
    for (PairTerm const& term : pairs) result.push_back({term.factor, (*term.pair)[side]});
    return result;
  }
  VectorPair copy(VectorPair const& pair) const {
    VectorPair result = make();
    combine({{1, &pair}}, result);
    return result;
  }
  /// Waits once.
  template <std::size_t count>
  std::array<double, count> dots(std::pair<VectorPair const*, VectorPair const*> const (&pairs)[count]) const {
    std::array<std::pair<Vector const*, Vector const*>, 2 * count> parts;
    std::array<double, 2 * count> sums;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      Side const side = kSides[k % 2];
      parts[k] = {(*pairs[k / 2].first)[side], (*pairs[k / 2].second)[side]};
    }
    vectors_->dots(parts, sums);
    std::array<double, count> result;
    for (std::size_t k = 0; k < count; ++k) result[k] = sums[2 * k] + sums[2 * k + 1];
    return result;
  }
  double dot(VectorPair const& first, VectorPair const& second) const { return dots({{&first, &second}})[0]; }

 private:
  VectorOperations const* vectors_;
};

}  // namespace monge
