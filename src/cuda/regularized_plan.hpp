// What is read out of a regularised plan, whatever its entries are made of.
#pragma once
#include "cuda/regularized_costs.hpp"

namespace monge::cuda {

/// Potentials and marginals in the units and the order of the entries, and the memory of evaluations.
class RegularizedReadout {
 public:
  explicit RegularizedReadout(RegularizedCosts const& costs);

  double* u() const { return u_; }
  double* v() const { return v_; }
  double const* p() const { return p_; }
  double const* q() const { return q_; }

  /// Of u() and v(), of which v() is replaced unless the conjugate of h is finite. Waits.
  RegularizedValues evaluate(RegularizedCosts const& costs, RegularizedEntries const& entries) const;
  void potentials(RegularizedCosts const& costs, MutableVectorView u, MutableVectorView v) const;

 private:
  DeviceArray<unsigned char> memory_;
  double *u_, *v_, *p_, *q_;
  double* marginal_[2];
  EntryValues* parts_;
  RegularizedValues* result_;
};

void dense(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableMatrixView out);
std::int64_t nonzeros(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableIndexView row_begin);
/// Throws invalid_argument where row_begin is not that of nonzeros().
void nonzero_entries(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableIndexView row_begin,
                     MutableIndexView columns, MutableVectorView values);
void marginal(RegularizedCosts const& costs, RegularizedEntries const& entries, Side side, MutableVectorView out);
void product(RegularizedCosts const& costs, RegularizedEntries const& entries, Side side, bool averaged,
             MatrixView values, MutableMatrixView out);

}  // namespace monge::cuda
