// The dual of a quadratically regularised plan on the CPU, in float64 for costs of any type.
//
// A pass reads the costs once, from the caller's matrix in place or computed from points. It leaves the sums of the
// positive u + v - S and the list of active pairs, line by line, 4 bytes for each: at first about half of all pairs.
// All linear algebra runs on this list: a step of conjugate gradients, on the Schur complement of the places, reads it
// once.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/regularized/regularized_costs.hpp"
#include "cpu/runtime/memory.hpp"
#include "seam/quadratic_operator.hpp"

namespace monge::cpu {

class QuadraticOperator final : public ReadableOperator<monge::QuadraticOperator> {
 public:
  QuadraticOperator(std::shared_ptr<RegularizedCosts const> costs, int threads);

  QuadraticValues start(double weight, std::span<double const> u, std::span<double const> v) override;
  QuadraticValues set_weight(double weight) override;
  QuadraticStep step(QuadraticDamping damping) override;
  QuadraticValues shorten(double fraction) override;
  void accept() override;

  RegularizedValues evaluate() override;
  void potentials(MutableVectorView u, MutableVectorView v) const override;

 private:
  /// Data of the lines, or of the places.
  struct Points {
    std::vector<double> potential;  // Less the shift of the costs; -infinity without mass.
    std::vector<double> sum;        // Sum of the positive u + v - S.
    std::vector<std::int32_t> count;
  };
  using ActivePlaces = std::vector<std::int32_t, CountedAllocator<std::int32_t>>;
  /// Potentials, and the results of a pass.
  struct State {
    Points line, place;
    std::vector<ActivePlaces> active;  // The places of each thread's lines.
    double squares = 0;
  };
  void load(Tile const& tile, double* x, double* c, double* w) const override;

  void pass(State& state);
  void set_idle(RegularizedCosts::Points const& given, std::vector<double>& line, std::vector<double>& place,
                bool of_lines) const;
  QuadraticValues values(State const& state) const;
  /// Calls visit(line, places of the line) for each line of a thread.
  template <class Visit>
  void for_each_line(State const& state, int thread, Visit&& visit) const;
  /// Returns the number of steps of conjugate gradients.
  int solve(QuadraticDamping damping);

  int team_;  // The threads that the problem keeps busy.
  CostLines const& lines_;
  RegularizedCosts::Points const &line_, &place_;
  double weight_ = 0;
  State now_, trial_;
  // The present linear system: diagonals, right-hand sides, solutions.
  struct System {
    std::vector<double> diagonal, right, solution;
  } of_lines_, of_places_;
  std::vector<double> u_, v_;  // Finite and feasible potentials of the last evaluation.
};

}  // namespace monge::cpu
