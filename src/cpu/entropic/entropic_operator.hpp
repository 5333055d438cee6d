// The entropic operator on the CPU, for any costs: a sweep is one pass over stripes of rows.
#pragma once
#include <vector>

#include "cpu/pass/plan_tiles.hpp"
#include "cpu/pass/stripes.hpp"
#include "entropic/update_rule.hpp"
#include "seam/backend.hpp"

namespace monge::cpu {

template <class T>
class EntropicOperator final : public monge::EntropicOperator {
 public:
  EntropicOperator(std::shared_ptr<Costs<T> const> costs, std::shared_ptr<SideWeights const> a,
                   std::shared_ptr<SideWeights const> b, Penalties const& penalties, bool is_self,
                   Workers const& workers, double cache_bytes, std::shared_ptr<Ordering const> ordering = nullptr);

  PlanData<T> const& data() const { return data_; }

  CostSize cost_size() const override {
    return {data_.costs->bound(), data_.costs->bound_of_all(), data_.costs->mean(), data_.costs->forbidden()};
  }
  VectorOperations const& vectors() const override { return vectors_; }
  void set_potentials(VectorView f, VectorView g) override;
  void get_potentials(MutableVectorView f, MutableVectorView g) const override;
  Vector const& potential(Side side) const override { return data_.potential(side); }
  Vector& potential(Side side) override;
  void sweep(Sweep const& sweep, int count) override;
  SweepErrors errors() override { return errors_; }
  using monge::EntropicOperator::evaluate;
  Evaluation evaluate(double eps, Vector* row_marginal, Vector* column_marginal) override;
  using monge::EntropicOperator::plan;
  std::unique_ptr<monge::PlanOperator> plan(double eps, double t) const override;

 private:
  /// Data from which bound_rows() bounds the logits of the next sweep.
  struct LastSweep {
    double eps = 0;  // 0 if the potentials were set after the last sweep
    std::vector<double> column_bias, row_lse;
  };

  void one_sweep(Sweep const& sweep);
  void translate();
  UpdateRule rule(Side side, Sweep const& sweep) const;
  bool tiles_serve(Sweep const& sweep) const;
  void take_tiles(Sweep const& sweep);
  double const* bound_rows(double eps);
  ErrorSums update_columns(Sweep const& sweep, HostVector const& f_used, double const* column_sums,
                           double smallest_trusted);

  PlanData<T> data_;
  HostVectorOperations vectors_;
  Workers workers_;     // Allowed by the context.
  double cache_bytes_;  // Limit for each plan.
  Stripes<T> stripes_;
  Logits<T> logits_;
  ColumnSums<T> column_sums_;
  double log_mass_ratio_;  // log_mass_ratio() of the weights.
  LastSweep last_;
  SweepErrors errors_;
  PlanTiles tiles_;  // Tiles of the present passes of an ordered problem; a self problem sweeps the upper ones.
  bool has_new_tiles_ = false;  // Whether the next sweep is the first over these tiles.
  double tiles_eps_ = 0;        // The eps of sweeps over tiles_; 0: the tiles are of other passes.
  int sweeps_of_tiles_ = 0;
  std::vector<double> of_tiles_[2];  // The potentials for which the tiles were found.
  /// Memory of one sweep, kept so that sweeps allocate nothing.
  HostVector f_next_;
  std::vector<double> g_plus_, bounds_;
  std::vector<ErrorSums> row_errors_;  // One for each thread of the team.
  std::vector<double> total_weights_;
  std::vector<std::int64_t> lost_;
};

}  // namespace monge::cpu
