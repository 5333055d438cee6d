// A solve: the policy of each problem says what comes next, this file does it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "core/stopwatch.hpp"
#include "entropic/policy/anderson.hpp"
#include "entropic/policy/sinkhorn_policy.hpp"
#include "entropic/report_message.hpp"
#include "entropic/sinkhorn.hpp"
#include "seam/values.hpp"
#include "second_order/newton.hpp"
#include "second_order/splr.hpp"

namespace monge {
namespace {

/// The size of potentials that turn one total into the other: rho_a rho_b / (rho_a + rho_b) times the logarithm of the
/// totals' ratio (docs/math.md, section 10).
double level(ValidMarginals const& marginals, Penalties const& penalties) {
  if (penalties.balanced()) return 0;
  return std::abs(std::log(marginals.total_a / marginals.total_b)) / (1 / penalties.a + 1 / penalties.b);
}

/// One problem during a solve: asks its policy for actions, tells it the outcomes, and keeps report and clock.
class SinkhornRun {
 public:
  SinkhornRun(Backend const& backend, SinkhornProblem& problem, int index)
      : backend_(backend),
        problem_(problem),
        index_(index),
        policy_(problem.options, problem.marginals.mass(), problem.entropic->cost_size().centred_bound,
                level(problem.marginals, penalties_of(problem.options)), times(), first_precision(problem.options),
                !problem.start.f.empty(), problem.entropic->is_self()) {}

  SinkhornStep const& next() const { return policy_.next(); }
  /// The operator of sweeps and steps.
  EntropicOperator& entropic() const { return host_ ? *host_ : *problem_.entropic; }
  SolveOptions const& options() const { return problem_.options; }
  /// The input of a float64 twin.
  OperatorInput twin(double cache_bytes) const {
    return {problem_.geometry,
            problem_.marginals,
            {Precision::float64, cache_bytes, penalties_of(options()), problem_.truncation},
            &entropic()};
  }

  /// Whether Newton's method of this problem runs on the processor of the host. From its first step on an operator
  /// there takes all sweeps and steps; the operator on the device gets their potentials for each certificate.
  bool is_for_host() const {
    SinkhornAction const action = next().action;
    return action == SinkhornAction::newton ? times().newton_on_host : host_ && action == SinkhornAction::sweep;
  }
  bool is_on_host() const { return host_ != nullptr; }
  /// The input of the operator there, with the geometry that on_host() gives.
  OperatorInput host_input() {
    host_geometry_ = on_host(backend_, problem_.geometry, host_copies_);
    return {host_geometry_, problem_.marginals, {Precision::float64, options().cache_bytes, penalties_of(options())}};
  }
  void go_to_host(std::unique_ptr<EntropicOperator> host) {
    newton_.reset();
    mixing_.reset();
    carry_potentials(entropic(), *host);
    host_ = std::move(host);
    report().newton_on_host = true;
  }
  void give_potentials_back() const { carry_potentials(*host_, *problem_.entropic); }

  bool mixes() const { return next().mixing != Mixing::off; }
  /// Uses the operator alone, as keep_best() does.
  void mix(Backend const& backend) {
    if (!mixing_) mixing_ = std::make_unique<AndersonMixing>(backend, entropic(), problem_.marginals.b);
    next().mixing == Mixing::start ? mixing_->start() : mixing_->combine();
  }
  void swept(SweepErrors const& errors) {
    swept_ = next().sweep;
    was_mixed_ = mixes();
    weigh(SweepOutcome{swept_, errors}.bound());
    policy_.swept(errors);
    constexpr double kLost = 4;  // Errors of a plan of the whole mass are at most 4 masses in sum.
    is_lost_ = !(errors.row + errors.column <= kLost * problem_.marginals.mass());
  }
  /// To be called after swept() where the sweep was mixed.
  void keep_best() { mixing_->add(swept_.eps, policy_.is_best()); }
  /// Potentials that sweeps have mixed are kept by their columns; their rows may be far off until the next sweep. So
  /// the least error at an eps stands for them.
  void record_sweep() {
    SweepErrors errors = policy_.errors();
    auto const sum = [](SweepErrors const& of) { return of.row + of.column; };
    bool const rises = swept_.eps == least_eps_ && sum(errors) > sum(least_errors_);
    if (rises && was_mixed_) errors = least_errors_;
    if (!rises) least_errors_ = errors;
    least_eps_ = swept_.eps;
    record(swept_, sum(errors), errors.gradient_norm);
  }

  /// Runs SPLR to its end.
  void splr() {
    SinkhornStep const taken = next();
    double const mass = problem_.marginals.mass();
    bool const runs_all = options().tolerance == 0;
    constexpr int kAny = std::numeric_limits<int>::max();
    SplrLimits const limits{.tolerance = options().tolerance,
                            .passes = runs_all ? kAny : taken.count,
                            .observe =
                                [&](SplrCheck const& check) {
                                  return record({check.passes, taken.sweep.eps, check.l1_error, 1, StepKind::splr,
                                                 Precision::float64, check.l2_error, watch_.seconds()});
                                },
                            .criterion = options().criterion,
                            .iterations = runs_all ? taken.count : kAny};
    SplrResult const result = run_splr(entropic(), problem_.marginals, taken.sweep.eps, options().splr, limits);
    policy_.ended(result.status, result.last.iteration, result.last.passes, result.last.l1_error * mass);
  }

  /// Uses the operator alone; stepped() follows.
  NewtonProgress newton_step() {
    if (!newton_)
      newton_ = std::make_unique<NewtonMethod>(entropic(), host_ ? nullptr : rough_.get(), problem_.marginals,
                                               penalties_of(options()), options().criterion);
    return newton_->advance(next().sweep.eps, next().count);
  }
  void recentre() const {
    if (penalties_of(options()).balanced()) centre(entropic(), problem_.marginals);
  }
  void stepped(NewtonProgress const& progress) {
    Sweep const kind = next().sweep;
    weigh(progress.error);
    policy_.stepped(progress);
    record(kind, progress.error, progress.gradient_norm);
    if (policy_.is_short() && options().tolerance > 0) policy_.returned(newton_->return_to_best());
  }

  /// Whether certificates need a float64 twin that does not exist yet.
  bool lacks_judge() const { return policy_.precision() != Precision::float64 && !judge_; }
  void set_judge(std::unique_ptr<EntropicOperator> judge) { judge_ = std::move(judge); }
  EvaluationStep evaluation() {
    find_back();
    return {judge_ ? judge_.get() : problem_.entropic.get(), problem_.entropic.get(), options().eps};
  }
  void certified(Evaluation value, double seconds) {
    bool const is_balanced = penalties_of(options()).balanced();
    value_loss_ = restore_digits(value, options().eps, report().mean_cost,
                                 is_balanced ? entropic().cost_size().centred_bound : kInfinity,
                                 report().mass * report().mass_b, entropic().cost_size().forbidden);
    problem_.dual_terms = value.dual_of_rows + value.dual_of_columns - options().eps * value.mass;
    policy_.certified(value);
    report().certified = true;
    report().gradient_norm = value.gradient_norm;
    report().transported_mass = value.mass;
    report().transport_cost = value.transport_cost;
    report().primal = value.primal;
    report().dual = value.dual;
    report().gap = value.gap;
    report().left_out = value.left_out;
    report().seconds.certificate += seconds;
    // A self problem has f = g.
    if (options().tolerance > 0 && penalties_of(options()).balanced() && !entropic().is_self())
      problem_.translation = (value.dual_of_columns - value.dual_of_rows) / (2 * problem_.marginals.total_a);
  }

  /// The sweeps go on with `twin`, in float64.
  void refined(std::unique_ptr<EntropicOperator> twin) {
    find_back();
    copy_potentials(entropic(), *twin);
    rough_ = std::move(problem_.entropic);
    problem_.entropic = std::move(twin);
    newton_.reset();
    mixing_.reset();
    judge_.reset();
    policy_.refined();
  }

  void finish() {
    report().status = next().status;
    report().iterations = policy_.iterations();
    report().annealing_iterations = policy_.annealing_iterations();
    report().refinement_iterations = policy_.refinement_iterations();
    report().newton_steps = policy_.newton_steps();
    report().newton_iterations = policy_.newton_iterations();
    report().precision = policy_.precision();
    report().marginal_error = policy_.marginal_error();
    report().left_out_of_row = problem_.truncation;
    if (problem_.truncation > 0 && !report().certified)
      report().left_out = std::numeric_limits<double>::quiet_NaN();  // Certificates alone bound it.
    LogitScale const& scale = policy_.scale();
    report().message =
        end_message(problem_, {.value = policy_.value(),
                               .is_annealing = stopped_at_ > options().eps,
                               .entry_rounding = scale.entry_rounding(policy_.precision(), options().eps,
                                                                      entropic().cost_size().bound_of_all),
                               .potential_rounding = scale.potential_rounding(policy_.precision(), options().eps),
                               .value_loss = value_loss_});
    report().seconds.total = watch_.seconds();
    report().seconds.sweeps = report().seconds.total - report().seconds.certificate;
    judge_.reset();
    mixing_.reset();
    newton_.reset();
    host_.reset();
    problem_.first = std::move(rough_);
  }

 private:
  Report& report() const { return problem_.report; }
  PassTimes times() const { return backend_.pass_times(problem_.geometry, options().cache_bytes); }

  /// Where sweeps have rounded the logits to noise, f grows as -g does, so far that f + g has no digits in float64
  /// either. A fixed number of sweeps stays as it is.
  void find_back() {
    if (std::exchange(is_lost_, false) && options().tolerance > 0) recentre();
  }

  /// Between operators of a problem on a device and on its host.
  static void carry_potentials(EntropicOperator const& from, EntropicOperator& to) {
    for (Side const side : kSides) {
      std::vector<double> values(to_size(from.size(side)));
      from.vectors().write(from.potential(side), MutableVectorView(values));
      to.vectors().read(VectorView(values), to.potential(side));
    }
  }

  Potentials potentials() const {
    auto const sized = [&](Side side) { return std::vector<double>(to_size(entropic().size(side))); };
    Potentials present{sized(Side::rows), sized(Side::columns)};
    entropic().get_potentials(present.f, present.g);
    return present;
  }

  /// Where no certificate tells the mass of the plan, it is taken to be the sum of b exp(-g / rho_b), as after a plain
  /// sweep. `error` is a bound of the L1 error that is left.
  void weigh(double error) {
    if (options().certificate || penalties_of(options()).balanced()) return;
    std::vector<double> const& b = problem_.marginals.b;
    Potentials const present = potentials();
    double mass = 0;
    for (std::size_t j = 0; j < b.size(); ++j)
      mass += b[j] > 0 ? b[j] * std::exp(-present.g[j] / options().penalty_b) : 0;
    policy_.weigh(mass, error);
  }

  /// Returns false if the caller wants to stop.
  bool record(Check const& check) {
    report().history.push_back(check);
    if (!options().progress || stopped_at_) return true;
    bool const go_on =
        options().progress({report().coarse_iterations + check.iteration, check.eps, check.marginal_error,
                            check.relaxation, check.kind, check.seconds, index_, [this] { return potentials(); }});
    if (!go_on) stopped_at_ = check.eps;
    return go_on;
  }
  void record(Sweep const& sweep, double error, double gradient_norm) {
    double const mass = policy_.mass();
    if (!record({policy_.iterations(), sweep.eps, error / mass, sweep.relaxation, policy_.kind(), policy_.precision(),
                 gradient_norm / mass, watch_.seconds()}))
      policy_.stop();
  }

  Backend const& backend_;
  SinkhornProblem& problem_;
  int index_;
  std::unique_ptr<EntropicOperator> judge_;  // Float64 twin that evaluates certificates of less precise sweeps.
  std::unique_ptr<EntropicOperator> rough_;  // The operator of the sweeps before refined().
  std::vector<std::vector<double>> host_copies_;
  Geometry host_geometry_;
  std::unique_ptr<EntropicOperator> host_;  // Null for a problem on the device.
  std::unique_ptr<NewtonMethod> newton_;
  std::unique_ptr<AndersonMixing> mixing_;
  Sweep swept_{};  // The kind of the last sweep,
  bool was_mixed_ = false;
  bool is_lost_ = false;        // Whether the last sweep saw larger errors than any plan of the whole mass has.
  SweepErrors least_errors_{};  // Errors of the history at the eps of the last sweep,
  double least_eps_ = 0;        // which is this one.
  SinkhornPolicy policy_;
  double value_loss_ = 0;             // The result of restore_digits().
  std::optional<double> stopped_at_;  // eps of the check at which the caller stopped the solve.
  Stopwatch watch_;
};

using Runs = std::vector<SinkhornRun*>;

Runs waiting_for(SinkhornAction action, Runs const& runs) {
  Runs found;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(found),
               [&](SinkhornRun const* run) { return run->next().action == action; });
  return found;
}

std::vector<ProblemSize> sizes_of(Runs const& runs) {
  std::vector<ProblemSize> sizes;
  for (SinkhornRun const* run : runs)
    sizes.push_back({run->entropic().size(Side::rows), run->entropic().size(Side::columns)});
  return sizes;
}

/// Calls work(k) for each run, where it uses the operator of that run alone.
void for_each(Backend const& backend, Runs const& runs, std::function<void(std::size_t)> const& work) {
  if (!runs.empty()) backend.for_each_step(sizes_of(runs), work);
}

/// record_sweep() follows for each run.
void sweep(Backend const& backend, Sweeper& sweeper, Runs const& runs) {
  if (runs.empty()) return;
  Runs mixed;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(mixed),
               [](SinkhornRun const* run) { return run->mixes(); });
  for (SinkhornRun const* run : runs) {
    if (run->next().recentres) run->recentre();
  }
  for_each(backend, mixed, [&](std::size_t k) { mixed[k]->mix(backend); });
  std::vector<SweepStep> steps;
  for (SinkhornRun const* run : runs) steps.push_back({&run->entropic(), run->next().sweep, run->next().count});
  sweeper.sweep(steps);
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->swept(steps[k].errors);
  for_each(backend, mixed, [&](std::size_t k) { mixed[k]->keep_best(); });
}

void step(Backend const& backend, Runs const& runs) {
  std::vector<NewtonProgress> progress(runs.size());
  for_each(backend, runs, [&](std::size_t k) { progress[k] = runs[k]->newton_step(); });
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->stepped(progress[k]);
}

/// Sweeps and steps on the processor of the host, up to a certificate or the end.
class HostRuns {
 public:
  void run(Runs const& active) {
    Runs runs, lacking;
    std::copy_if(active.begin(), active.end(), std::back_inserter(runs), [](auto* run) { return run->is_for_host(); });
    if (runs.empty()) return;
    if (!context_) context_ = Context::cpu();
    Backend const& host = backend_of(*context_);
    std::vector<OperatorInput> inputs;
    for (SinkhornRun* run : runs) {
      if (run->is_on_host()) continue;
      lacking.push_back(run);
      inputs.push_back(run->host_input());
    }
    std::vector<std::unique_ptr<EntropicOperator>> operators = host.entropic_operators(inputs);
    for (std::size_t k = 0; k < lacking.size(); ++k) lacking[k]->go_to_host(std::move(operators[k]));
    std::vector<std::optional<NewtonProgress>> stepped(runs.size());  // By the last call of `work`; empty for sweeps.
    auto const work = [&](std::size_t k) {
      stepped[k].reset();
      if (!runs[k]->is_for_host()) return false;
      if (runs[k]->next().action == SinkhornAction::newton) {
        stepped[k] = runs[k]->newton_step();
      } else {
        sweep(host, *host.sweeper(), {runs[k]});
      }
      return true;
    };
    auto const show = [&](std::size_t k) { stepped[k] ? runs[k]->stepped(*stepped[k]) : runs[k]->record_sweep(); };
    host.run_each(sizes_of(runs), static_cast<bool>(runs[0]->options().progress), work, show);
    for (SinkhornRun const* run : runs) run->give_potentials_back();
  }

 private:
  std::optional<Context> context_;
};

void certify(Backend const& backend, Runs const& runs) {
  if (runs.empty()) return;
  Stopwatch const watch;
  Runs lacking;
  std::vector<OperatorInput> inputs;
  for (SinkhornRun* run : runs) {
    if (!run->lacks_judge()) continue;
    lacking.push_back(run);
    inputs.push_back(run->twin(0));  // One pass: keeping scores would not pay.
  }
  std::vector<std::unique_ptr<EntropicOperator>> judges = backend.entropic_operators(inputs);
  for (std::size_t k = 0; k < lacking.size(); ++k) lacking[k]->set_judge(std::move(judges[k]));
  std::vector<EvaluationStep> steps;
  for (SinkhornRun* run : runs) steps.push_back(run->evaluation());
  backend.evaluate(steps);
  double const seconds = watch.seconds();
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->certified(steps[k].value, seconds);
}

void refine(Backend const& backend, Runs const& runs) {
  if (runs.empty()) return;
  std::vector<OperatorInput> inputs;
  for (SinkhornRun const* run : runs) inputs.push_back(run->twin(run->options().cache_bytes));
  std::vector<std::unique_ptr<EntropicOperator>> twins = backend.entropic_operators(inputs);
  for (std::size_t k = 0; k < runs.size(); ++k) runs[k]->refined(std::move(twins[k]));
}

}  // namespace

void run_sinkhorn(Backend const& backend, std::span<SinkhornProblem> problems) {
  std::vector<SinkhornRun> runs;
  runs.reserve(problems.size());
  Runs active;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].solved_by == nullptr)
      active.push_back(&runs.emplace_back(backend, problems[i], static_cast<int>(i)));
  }
  std::unique_ptr<Sweeper> const sweeper = backend.sweeper();
  HostRuns host;
  while (!active.empty()) {
    host.run(active);
    Runs const sweeps = waiting_for(SinkhornAction::sweep, active);
    sweep(backend, *sweeper, sweeps);
    for (SinkhornRun* run : sweeps) run->record_sweep();
    Runs steps = waiting_for(SinkhornAction::newton, active);
    std::erase_if(steps,
                  [](SinkhornRun const* run) { return run->is_for_host(); });  // They go there in the next round.
    step(backend, steps);
    for (SinkhornRun* run : waiting_for(SinkhornAction::splr, active)) run->splr();
    certify(backend, waiting_for(SinkhornAction::certify, active));
    refine(backend, waiting_for(SinkhornAction::refine, active));
    for (SinkhornRun* run : waiting_for(SinkhornAction::finish, active)) run->finish();
    std::erase_if(active, [](SinkhornRun const* run) { return run->next().action == SinkhornAction::finish; });
  }
}

}  // namespace monge
