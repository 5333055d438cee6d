// The dual of a quadratically regularised plan on the CPU, in float64 whatever the costs are stored in.
//
// A pass reads the costs once, from the caller's matrix in place or made from points, and leaves the sums of the
// positive scores and the list of active pairs, line by line, on which all of the linear algebra runs. It is memory of
// 4 bytes an active pair, and a step of conjugate gradients, on the Schur complement of the places, reads them once.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/regularized/regularized_costs.hpp"
#include "regularized/quadratic_operator.hpp"

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
  /// Lines or places.
  struct Points {
    std::vector<double> potential;  // Less the shift of the costs; -infinity without mass.
    std::vector<double> sum;        // Of the positive scores.
    std::vector<std::int32_t> count;
  };
  /// Potentials, and what a pass has found of them.
  struct State {
    Points line, place;
    std::vector<std::vector<std::int32_t>> active;  // The places of the lines of each thread, one line after the other.
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
  /// Returns the steps of conjugate gradients.
  int solve(QuadraticDamping damping);

  int team_;  // Of the threads that are given, as many as the problem keeps busy.
  CostLines const& lines_;
  RegularizedCosts::Points const &line_, &place_;
  double weight_ = 0;
  State now_, trial_;
  // The linear system at hand: diagonals, right-hand sides; solutions.
  struct System {
    std::vector<double> diagonal, right, solution;
  } of_lines_, of_places_;
  std::vector<double> u_, v_;  // Finite and feasible: what the last evaluation was of.
};

}  // namespace monge::cpu
