// Reading of a regularised plan, for any source of entries.
#pragma once
#include <memory>

#include "cuda/regularized/regularized_costs.hpp"

namespace monge::cuda {

/// Potentials and marginals in the units and the order of the entries, and the memory of evaluations.
class RegularizedReadout {
 public:
  explicit RegularizedReadout(RegularizedCosts const& costs);

  double* u() const { return u_; }
  double* v() const { return v_; }
  double const* p() const { return p_; }
  double const* q() const { return q_; }

  /// Evaluates u() and v(). Replaces v() unless the conjugate of h is finite. Waits.
  RegularizedValues evaluate(RegularizedCosts const& costs, RegularizedEntries const& entries, DualBound bound) const;
  /// Potentials of points without mass are lowered by `depth`, in the user's units.
  void potentials(RegularizedCosts const& costs, double depth, MutableVectorView u, MutableVectorView v) const;

 private:
  DeviceArray<unsigned char> memory_;
  double *u_, *v_, *p_, *q_;
  double* marginal_[2];
  EntryValues* parts_;
  RegularizedValues* result_;
};

void dense(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableMatrixView out);
std::int64_t nonzeros(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableIndexView row_begin);
/// Throws invalid_argument if row_begin differs from the result of nonzeros().
void nonzero_entries(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableIndexView row_begin,
                     MutableIndexView columns, MutableVectorView values);
void marginal(RegularizedCosts const& costs, RegularizedEntries const& entries, Side side, MutableVectorView out);
void product(RegularizedCosts const& costs, RegularizedEntries const& entries, Side side, bool averaged,
             MatrixView values, MutableMatrixView out);

/// An operator of either method. Plans read all of them in the same way.
template <class Operator>
class ReadableOperator : public Operator {
 public:
  void dense(MutableMatrixView out) const final {
    DeviceGuard const guard(costs_.runtime()->index());
    cuda::dense(costs_, plan(), out);
  }
  std::int64_t nonzeros(MutableIndexView row_begin) const final {
    DeviceGuard const guard(costs_.runtime()->index());
    return cuda::nonzeros(costs_, plan(), row_begin);
  }
  void entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const final {
    DeviceGuard const guard(costs_.runtime()->index());
    nonzero_entries(costs_, plan(), row_begin, columns, values);
  }
  void marginal(Side side, MutableVectorView out) const final {
    DeviceGuard const guard(costs_.runtime()->index());
    cuda::marginal(costs_, plan(), side, out);
  }
  void product(Side side, bool averaged, MatrixView values, MutableMatrixView out) const final {
    DeviceGuard const guard(costs_.runtime()->index());
    cuda::product(costs_, plan(), side, averaged, values, out);
  }

 protected:
  explicit ReadableOperator(std::shared_ptr<RegularizedCosts const> costs) : Operator(costs), costs_(*costs) {}

  RegularizedCosts const& costs_;

 private:
  /// The present source of X.
  virtual RegularizedEntries plan() const = 0;
};

}  // namespace monge::cuda
