// Sinkhorn's algorithm on an entropic operator: the eps ladder, the sweeps, when to stop, the certificate.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/entropic.hpp>
#include <monge/error.hpp>

#include "core/validation.hpp"
#include "solvers/plan_state.hpp"
#include "solvers/relaxation.hpp"

namespace monge {

std::string_view name(Schedule schedule) {
  switch (schedule) {
    case Schedule::overrelaxed:
      return "overrelaxed";
    case Schedule::alternating:
      return "alternating";
    case Schedule::symmetric:
      return "symmetric";
  }
  return "unknown";
}

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::automatic:
      return "auto";
    case Precision::float32:
      return "float32";
    case Precision::tf32:
      return "tf32";
    case Precision::float64:
      return "float64";
  }
  return "unknown";
}

std::string_view name(Status status) {
  switch (status) {
    case Status::converged:
      return "converged";
    case Status::completed:
      return "completed";
    case Status::iteration_limit:
      return "iteration_limit";
    case Status::precision_limit:
      return "precision_limit";
    case Status::stopped:
      return "stopped";
  }
  return "unknown";
}

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Half a unit in the last place of the products.
double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return 0x1p-11;
    case Precision::automatic:
    case Precision::float32:
      return 0x1p-24;
    case Precision::float64:
      return 0x1p-53;
  }
  return 0;
}

class SinkhornRun {
 public:
  SinkhornRun(std::unique_ptr<EntropicOperator>& problem, OperatorFactory const& make, double mass,
              SolveOptions const& options)
      : problem_(problem),
        make_(make),
        mass_(mass),
        options_(options),
        precision_(first_precision(options)),
        plain_tail_(std::min(20, options.iterations / 5)),
        target_(options.tolerance),
        polish_below_(10 * options.tolerance) {}

  Report run() {
    bool const keep_going = anneal() && iterate();
    report_.mass = mass_;
    report_.seconds.sweeps = watch_.seconds() - report_.seconds.certificate;
    finish(keep_going);
    report_.seconds.total = watch_.seconds();
    return std::move(report_);
  }

 private:
  bool symmetric() const { return options_.schedule == Schedule::symmetric; }
  int remaining() const { return options_.iterations - report_.iterations; }

  /// `count` sweeps and a check: false when the callback asks to stop.
  bool sweep(double eps, double omega, int count) {
    problem_->sweep({.eps = eps, .symmetric = symmetric(), .relaxation = omega}, count);
    report_.iterations += count;
    if (precision_ != first_precision(options_)) report_.refinement_iterations += count;
    errors_ = problem_->errors();
    double const error = (errors_.row + errors_.column) / mass_;
    report_.history.push_back({report_.iterations, eps, error, omega, precision_});
    if (!options_.progress) return true;
    return options_.progress({report_.iterations, eps, error, omega, watch_.seconds()});
  }

  /// One plain sweep at each eps of the ladder. A cap on the iterations shortens the ladder from above, so the last
  /// sweep is always one at the eps that was asked for.
  bool anneal() {
    bool const warm = !options_.f.empty();
    double const start = problem_->centred_cost_bound();
    if (warm || options_.annealing >= 1 || start <= options_.eps) return true;
    double const rungs = std::ceil(std::log(start / options_.eps) / -std::log(options_.annealing));
    int const count = static_cast<int>(std::min(rungs, options_.iterations - 1.0));
    for (int k = count; k >= 1; --k) {
      // The first rung is the start itself where the cap allows it.
      double const eps = std::min(start, options_.eps * std::pow(options_.annealing, -k));
      report_.annealing_iterations += 1;
      if (!sweep(eps, 1.0, 1)) return false;
    }
    return true;
  }

  /// Sweeps at the target eps until a test ends them: false when the callback did.
  bool iterate() {
    while (remaining() > 0) {
      bool const relax = relaxed_next();
      int const count = std::min(options_.check_every, relax ? remaining() - plain_tail_ : remaining());
      if (!sweep(options_.eps, relax ? relaxation_.omega() : 1.0, count)) return false;
      if (options_.schedule == Schedule::overrelaxed) {
        if (relax) {
          relaxation_.observe(errors_.row + errors_.column, count);
        } else {
          relaxation_.interrupt();
        }
      }
      if (options_.tolerance == 0) continue;
      if (bound() <= target_ * mass_ ? accept() : stalled()) return true;
    }
    return true;
  }

  /// Overrelaxed sweeps carry their error back and forth between rows and columns, and a few plain ones shrink it
  /// several times over. So sweeps are plain close to the cap, and from time to time where that might reach the
  /// tolerance.
  bool relaxed_next() {
    if (options_.schedule != Schedule::overrelaxed) return false;
    if (remaining() <= plain_tail_) return false;
    double const error = (errors_.row + errors_.column) / mass_;
    if (relaxation_.omega() == 1.0 || error > polish_below_) return true;
    polish_below_ = error / 4;
    return false;
  }

  /// The L1 error of the current potentials as far as the last sweep can tell. A plain alternating sweep leaves the
  /// columns exact and |P 1 - a|_1 at most the column error that it found; the others are taken at their old pair.
  double bound() const {
    bool const plain = !symmetric() && report_.history.back().relaxation == 1.0;
    return plain ? errors_.column : errors_.row + errors_.column;
  }

  /// The sweeps are below the target: true if the float64 evaluation agrees, or if more sweeps cannot help.
  bool accept() {
    if (!options_.certificate) return true;
    double const error = certify();
    if (error <= options_.tolerance * mass_) return true;
    // The sweeps solve a problem whose costs are rounded; when they see far less error than there is, that is why.
    if (bound() < 0.1 * error) return !refine();
    target_ /= 2;
    return false;
  }

  /// True when the error has stopped falling at a level that rounding explains, without overrelaxation too.
  bool stalled() {
    double const error = errors_.row + errors_.column;
    if (error < 0.999 * best_error_) {
      best_error_ = error;
      best_iteration_ = report_.iterations;
      return false;
    }
    constexpr int kPatience = 100;
    double const logit_size = 1 + problem_->centred_cost_bound() / options_.eps;
    bool const rounding = error <= 8 * unit_roundoff(precision_) * logit_size * mass_;
    if (!rounding || report_.iterations - best_iteration_ < kPatience) return false;
    if (report_.history.back().relaxation != 1.0 && !may_refine()) {
      relaxation_.disable();
      best_error_ = std::numeric_limits<double>::infinity();
      return false;
    }
    return !refine();
  }

  bool may_refine() const { return options_.precision == Precision::automatic && precision_ != Precision::float64; }

  /// At the limit of the precision: goes on in float64 from the potentials that are there, if that was left to us.
  bool refine() {
    if (!may_refine()) {
      at_precision_limit_ = true;
      return false;
    }
    judge_.reset();
    std::unique_ptr<EntropicOperator> twin = make_(Precision::float64, options_.cache_bytes);
    copy_potentials(*problem_, *twin);
    problem_ = std::move(twin);
    precision_ = Precision::float64;
    relaxation_.interrupt();
    target_ = options_.tolerance;
    best_error_ = std::numeric_limits<double>::infinity();
    return true;
  }

  static void copy_potentials(EntropicOperator const& from, EntropicOperator& to) {
    std::vector<double> f(static_cast<std::size_t>(from.size(Side::rows)));
    std::vector<double> g(static_cast<std::size_t>(from.size(Side::columns)));
    from.get_potentials(f, g);
    to.set_potentials(f, g);
  }

  /// Evaluates the current potentials in float64 and returns their marginal error.
  double certify() {
    if (certified_at_ == report_.iterations) return report_.marginal_error;
    Stopwatch const watch;
    EntropicOperator* judge = problem_.get();
    if (precision_ != Precision::float64) {
      // One pass: keeping scores would not pay.
      if (!judge_) judge_ = make_(Precision::float64, 0);
      copy_potentials(*problem_, *judge_);
      judge = judge_.get();
    }
    Evaluation const value = judge->evaluate(options_.eps);
    report_.certified = true;
    report_.marginal_error = value.row_error + value.column_error;
    report_.transport_cost = value.transport_cost;
    report_.primal = value.primal;
    report_.dual = value.dual;
    report_.gap = value.gap;
    certified_at_ = report_.iterations;
    report_.seconds.certificate += watch.seconds();
    return report_.marginal_error;
  }

  void finish(bool ran_to_an_end) {
    report_.precision = precision_;
    double error = 0;
    if (options_.certificate) {
      error = certify();
    } else {
      error = report_.marginal_error = bound();
      report_.transport_cost = report_.primal = report_.dual = report_.gap = kNaN;
    }
    bool const at_target = !report_.history.empty() && report_.history.back().eps == options_.eps;
    if (!ran_to_an_end) {
      report_.status = Status::stopped;
      report_.message = fmt::format("stopped by the caller after {} sweeps{}", report_.iterations,
                                    at_target ? "" : ", while still annealing");
    } else if (options_.tolerance == 0) {
      report_.status = Status::completed;
      report_.message = fmt::format("ran {} sweeps as asked; marginal error {:.2e}", report_.iterations, error);
    } else if (error <= options_.tolerance * mass_) {
      report_.status = Status::converged;
      std::string const refined = report_.refinement_iterations > 0
                                      ? fmt::format(", the last {} in float64", report_.refinement_iterations)
                                      : "";
      report_.message =
          fmt::format("converged after {} sweeps{}; marginal error {:.2e}", report_.iterations, refined, error);
    } else if (at_precision_limit_) {
      report_.status = Status::precision_limit;
      report_.message =
          fmt::format("marginal error {:.2e} is as far as {} goes at this eps; {}", error, name(precision_),
                      precision_ == Precision::tf32      ? "precision float32 or float64 gets further"
                      : precision_ == Precision::float32 ? "precision float64 gets further"
                                                         : "a larger eps or tolerance is needed");
    } else {
      report_.status = Status::iteration_limit;
      report_.message = fmt::format(
          "marginal error {:.2e} after {} sweeps is above the tolerance; more iterations or a larger eps would help",
          error, report_.iterations);
    }
  }

  std::unique_ptr<EntropicOperator>& problem_;
  OperatorFactory const& make_;
  std::unique_ptr<EntropicOperator> judge_;
  double mass_;
  SolveOptions const& options_;
  Precision precision_;  // Of problem_.
  Stopwatch watch_;
  Report report_;
  AdaptiveRelaxation relaxation_;
  SweepErrors errors_{0, 0};
  int plain_tail_;       // Sweeps before the cap that are not overrelaxed.
  double target_;        // For the sweeps' own error; below the tolerance once a certificate has disagreed.
  double polish_below_;  // Relative error at which to try plain sweeps next.
  double best_error_ = std::numeric_limits<double>::infinity();
  int best_iteration_ = 0;
  int certified_at_ = -1;
  bool at_precision_limit_ = false;
};

}  // namespace

Report run_sinkhorn(std::unique_ptr<EntropicOperator>& problem, OperatorFactory const& make, double mass,
                    SolveOptions const& options) {
  return SinkhornRun(problem, make, mass, options).run();
}

Plan solve(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options) {
  Stopwatch const watch;
  validate(options);
  PointCloud const& clouds = std::get<PointCloud>(geometry);
  validate(clouds, context.device());
  Backend const& backend = context.backend();
  std::int64_t const n = clouds.x.rows();
  std::int64_t const m = clouds.y.rows();
  Weights const weights = validated_weights(backend, a, b, n, m, options.tolerance);
  Marginals const marginals{weights.a, weights.b};
  auto const make = [&](Precision precision, double cache_bytes) {
    return backend.entropic_operator(geometry, marginals, {precision, cache_bytes});
  };
  std::unique_ptr<EntropicOperator> problem = make(first_precision(options), options.cache_bytes);
  if (!options.f.empty()) {
    validate_potential("f", backend, options.f, n);
    validate_potential("g", backend, options.g, m);
    problem->set_potentials(options.f, options.g);
  } else if (options.annealing == 1) {
    problem->set_potentials({}, {});
  }
  double const setup = watch.seconds();
  Report report = run_sinkhorn(problem, make, weights.mass, options);
  report.seconds.setup = setup;
  report.seconds.total += setup;
  return Plan(std::make_unique<Plan::State>(
      Plan::State{context, problem->plan(options.eps), clouds.x.columns(), options.eps, std::move(report)}));
}

}  // namespace monge
