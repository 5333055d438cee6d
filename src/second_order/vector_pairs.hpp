// Vectors of all potentials: a part for the rows, and one for the columns.
#pragma once
#include <initializer_list>
#include <vector>

#include "backend/vectors.hpp"

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
    for (Side const side : kSides) {
      std::vector<Term> terms;
      for (PairTerm const& term : pairs) terms.push_back({term.factor, (*term.pair)[side]});
      vectors_->combine(terms, *out[side]);
    }
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
