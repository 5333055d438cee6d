// Vectors of all potentials: a part for the rows, and one for the columns.
#pragma once
#include <initializer_list>
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
  double dot(VectorPair const& first, VectorPair const& second) const {
    return vectors_->dot(*first.of_rows, *second.of_rows) + vectors_->dot(*first.of_columns, *second.of_columns);
  }

 private:
  VectorOperations const* vectors_;
};

}  // namespace monge
