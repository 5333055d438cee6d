#include "cpu/backend.hpp"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "core/overloaded.hpp"
#include "core/problem_error.hpp"
#include "core/side_by_side.hpp"
#include "core/strided.hpp"
#include "cpu/assignment/operator.hpp"
#include "cpu/entropic/entropic_operator.hpp"
#include "cpu/entropic/mixture.hpp"
#include "cpu/geometry/cloud_tree.hpp"
#include "cpu/geometry/cost_survey.hpp"
#include "cpu/geometry/matrix_costs.hpp"
#include "cpu/geometry/ordered_clouds.hpp"
#include "cpu/geometry/point_costs.hpp"
#include "cpu/projection/operator.hpp"
#include "cpu/regularized/quadratic_operator.hpp"
#include "cpu/regularized/splitting_operator.hpp"
#include "cpu/runtime/memory.hpp"
#include "cpu/runtime/threads.hpp"
#include "geometry/validation.hpp"

namespace monge {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU";
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, std::shared_ptr<Ranks> ranks)
      : threads_(threads),
        workers_{threads, ranks.get()},
        ranks_(std::move(ranks)),
        projection_(threads),
        assigner_(threads) {}

  Device device() const override { return {}; }
  Ranks* ranks() const override { return ranks_.get(); }
  PassTimes pass_times(Geometry const& geometry, double cache_bytes) const override {
    auto const [rows, columns, dimension] = shape_of(geometry);
    double const d = static_cast<double>(dimension);
    // A pass takes the first term, the work between passes the second. Over few pairs this work takes more than the
    // limit of 6; but hard problems of that size lose more if Newton's method comes late.
    double const newton =
        std::min(6.0, (d > 0 ? 1.9 : 4.0) + 1.7e5 / (static_cast<double>(rows) * static_cast<double>(columns)));
    if (d == 0) return {.float64 = 2, .newton = newton, .mixes = true};  // A matrix.
    // A certificate of float32 sweeps takes the products whose scores float64 sweeps keep. From d = 256 on they take
    // longer than the few sweeps that a large eps needs (bench/notes/relaxation.md).
    bool const keeps = 8.0 * static_cast<double>(rows) * static_cast<double>(columns) <= cache_bytes;
    return {.float64 = 2.7, .newton = newton, .float64_up_to = keeps && d >= 256 ? d / 2 : 0, .mixes = true};
  }

  MemoryCount& memory() const override { return cpu::memory(); }

  DeviceInfo info() const override {
    return {.device = device(),
            .name = processor_name(),
            .instruction_set = cpu::instruction_set(),
            .units = threads_,
            .memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)};
  }

  std::vector<double> read(MatrixView view) const override { return values_of(view); }

  std::vector<std::unique_ptr<EntropicOperator>> entropic_operators(
      std::span<OperatorInput const> inputs) const override {
    return made_of<std::unique_ptr<EntropicOperator>>(inputs, [&](OperatorInput const& input) { return make(input); });
  }

  std::unique_ptr<CloudTree> tree(EntropicOperator const& entropic, OperatorInput const& input,
                                  Side side) const override {
    PointCloud const& clouds = clouds_of(input.geometry);
    PointOrders const& orders = static_cast<cpu::HostVectorOperations const&>(entropic.vectors()).orders();
    PointOrder const& order = *orders.of[static_cast<int>(side)];
    return side == Side::rows ? cpu::cloud_tree(clouds.x, clouds.labels.x, input.marginals.a, order, threads_)
                              : cpu::cloud_tree(clouds.y, clouds.labels.y, input.marginals.b, order, threads_);
  }

  void add_transform(Side side, double factor, PlanOperator& plan, EntropicOperator& to) const override {
    std::vector<double> transform(to_size(to.size(side)));
    plan.transform(side, MutableVectorView(transform));
    PointOrders const& orders = static_cast<cpu::HostVectorOperations const&>(to.vectors()).orders();
    std::vector<double>& potential = cpu::on_host(to.potential(side)).values();
    for (std::int64_t place = 0; place < std::ssize(potential); ++place)
      potential[to_size(place)] += factor * transform[to_size(orders.point(side, place))];
  }

  double mean_cost(PointCloud const& clouds, Marginals const& marginals) const override {
    cpu::PointCosts<double> const points(clouds, marginals.a, marginals.b);
    cpu::CostLines const costs = cpu::lines_of(points);
    return cpu::survey_costs({.costs = costs, .line_weight = marginals.a, .place_weight = marginals.b}, workers_).mean;
  }

  std::unique_ptr<Sweeper> sweeper() const override { return std::make_unique<CpuSweeper>(*this); }

  void evaluate(std::span<EvaluationStep> steps) const override {
    for_each_operator(steps, [](EvaluationStep& step) {
      if (step.potentials != step.entropic) copy_potentials(*step.potentials, *step.entropic);
      step.value = step.entropic->evaluate(step.eps);
    });
  }

  std::vector<std::unique_ptr<PlanOperator>> plans(std::span<PlanInput const> inputs) const override {
    std::vector<std::unique_ptr<PlanOperator>> plans;
    for (PlanInput const& input : inputs) plans.push_back(input.entropic->plan(input.eps, input.t));
    return plans;
  }

  void mix(VectorOperations const& vectors, Vector const& image_f, Vector const& image_g, Mixture& mixture, Vector& f,
           Vector& g) const override {
    cpu::mix(vectors, image_f, image_g, mixture, f, g);
  }

  std::vector<std::shared_ptr<RegularizedCosts const>> regularized_costs(
      std::span<RegularizedInput const> inputs) const override {
    return made_of<std::shared_ptr<RegularizedCosts const>>(inputs, [&](RegularizedInput const& input) {
      return std::make_shared<cpu::RegularizedCosts const>(input, threads_);
    });
  }

  std::vector<std::unique_ptr<SplittingOperator>> splitting_operators(
      std::span<SplittingInput const> inputs) const override {
    return made_of<std::unique_ptr<SplittingOperator>>(inputs,
                                                       [&](SplittingInput const& input) { return make(input); });
  }

  void iterate(std::span<SplittingStep> steps) const override {
    for_each_operator(steps, [](SplittingStep& step) {
      step.splitting->iterate(step.count);
      step.residual = step.splitting->residual();
    });
  }

  std::unique_ptr<QuadraticOperator> quadratic_operator(std::shared_ptr<RegularizedCosts const> costs) const override {
    return std::make_unique<cpu::QuadraticOperator>(own(costs), threads_);
  }

  /// Problems too small for two threads run in parallel, one thread each. Larger ones run in turn with all threads.
  /// Either way each gets the threads that it would have alone.
  void run_each(std::span<ProblemSize const> sizes, bool watched, std::function<bool(std::size_t)> const& work,
                std::function<void(std::size_t)> const& show) const override {
    std::vector<std::size_t> small, large;
    for (std::size_t k = 0; k < sizes.size(); ++k)
      (cpu::Team(workers_, sizes[k].rows, sizes[k].columns).size == 1 ? small : large).push_back(k);
    auto const run = [&](std::size_t k) {
      while (work(k)) show(k);
    };
    int const threads = useful_for(small.size());
    if (watched && !ranks_) {
      auto const work_on = [&](std::size_t i) { return work(small[i]); };
      side_by_side(threads, small.size(), work_on, [&](std::size_t i) { show(small[i]); });
    } else {  // Ranks agree on answers in the order of the problems.
      side_by_side(watched ? 1 : threads, small.size(), [&](std::size_t i) { run(small[i]); });
    }
    for (std::size_t const k : large) run(k);
  }

  ProjectionOperator const& projection() const override { return projection_; }
  AssignmentOperator const& assignment() const override { return assigner_; }

 private:
  class CpuSweeper final : public Sweeper {
   public:
    explicit CpuSweeper(CpuBackend const& backend) : backend_(backend) {}
    void sweep(std::span<SweepStep> steps) override {
      backend_.for_each_operator(steps, [](SweepStep& step) {
        step.entropic->sweep(step.sweep, step.count);
        step.errors = step.entropic->errors();
      });
    }

   private:
    CpuBackend const& backend_;
  };

  /// make(input) of each, side by side. Throws ProblemError.
  template <class Result, class Input, class Make>
  std::vector<Result> made_of(std::span<Input const> inputs, Make const& make) const {
    std::vector<Result> results(inputs.size());
    // Ranks exchange messages in the order of the problems.
    side_by_side(ranks_ ? 1 : useful_for(inputs.size()), inputs.size(),
                 [&](std::size_t i) { for_problem(i, [&] { results[i] = make(inputs[i]); }); });
    return results;
  }

  /// Costs that this backend has made.
  static std::shared_ptr<cpu::RegularizedCosts const> own(std::shared_ptr<RegularizedCosts const> const& costs) {
    return std::static_pointer_cast<cpu::RegularizedCosts const>(costs);
  }

  std::unique_ptr<EntropicOperator> make(OperatorInput const& input) const {
    Precision const precision = input.options.precision;
    if (precision == Precision::float32) return make<float>(input);
    if (precision == Precision::float64) return make<double>(input);
    throw_bad_precision(precision);
  }

  std::unique_ptr<SplittingOperator> make(SplittingInput const& input) const {
    if (input.precision == Precision::float32)
      return std::make_unique<cpu::SplittingOperator<float>>(own(input.costs), threads_);
    if (input.precision == Precision::float64)
      return std::make_unique<cpu::SplittingOperator<double>>(own(input.costs), threads_);
    throw_bad_precision(input.precision);
  }

  [[noreturn]] static void throw_bad_precision(Precision precision) {
    throw Error(ErrorCode::unsupported,
                "precision: is " + std::string(name(precision)) + "; the CPU offers float32 and float64");
  }

  template <class Step, class Work>
  void for_each_operator(std::span<Step> steps, Work const& work) const {
    std::vector<ProblemSize> sizes;
    for (Step const& step : steps) sizes.push_back(size_of(step));
    for_each_step(sizes, [&](std::size_t k) { work(steps[k]); });
  }
  template <class Step>
  static ProblemSize size_of(Step const& step) {
    return {step.entropic->size(Side::rows), step.entropic->size(Side::columns)};
  }
  static ProblemSize size_of(SplittingStep const& step) { return {step.splitting->rows(), step.splitting->columns()}; }
  int useful_for(std::size_t count) const {
    return static_cast<int>(std::clamp<std::size_t>(count, 1, to_size(threads_)));
  }

  template <class T>
  std::unique_ptr<EntropicOperator> make(OperatorInput const& input) const {
    Marginals const& marginals = input.marginals;
    auto const twin_of = [&](auto const& data, std::shared_ptr<cpu::Costs<T> const> costs,
                             std::shared_ptr<cpu::Ordering const> ordering) {
      return std::make_unique<cpu::EntropicOperator<T>>(std::move(costs), data.weights[0], data.weights[1],
                                                        input.options.penalties, data.is_self, workers_,
                                                        input.options.cache_bytes, std::move(ordering));
    };
    if (auto const* const twin = dynamic_cast<cpu::EntropicOperator<T> const*>(input.twin))
      return twin_of(twin->data(), twin->data().costs, twin->data().ordering);
    if (auto const* const twin = dynamic_cast<cpu::EntropicOperator<cpu::Other<T>> const*>(input.twin)) {
      if (!twin->data().ordering) return twin_of(twin->data(), twin->data().costs->twin(input.geometry), nullptr);
      cpu::OrderedClouds const clouds(clouds_of(input.geometry), *twin->data().ordering);
      auto costs = twin->data().costs->twin(clouds.clouds());
      auto ordering = clouds.ordering(*costs->of_points(), twin->data().ordering->truncation);
      return twin_of(twin->data(), std::move(costs), std::move(ordering));
    }
    if (input.options.truncation > 0) return make_ordered<T>(input);
    auto const* const of = static_cast<cpu::EntropicOperator<T> const*>(input.self.of);
    bool const is_self = of != nullptr;
    auto costs = std::visit(
        Overloaded{[&](PointCloud const& clouds) -> std::shared_ptr<cpu::Costs<T> const> {
                     using Points = cpu::PointCosts<T>;
                     if (!is_self) return std::make_shared<Points>(clouds, marginals.a, marginals.b);
                     return Points::self(clouds, marginals.a, static_cast<Points const&>(*of->data().costs),
                                         input.self.side);
                   },
                   [&](CostMatrix const& matrix) -> std::shared_ptr<cpu::Costs<T> const> {
                     return std::make_shared<cpu::MatrixCosts<T>>(matrix, marginals.a, marginals.b, workers_);
                   }},
        input.geometry);
    auto const a = of ? of->data().weights[static_cast<int>(input.self.side)]
                      : std::make_shared<cpu::SideWeights const>(marginals.a);
    auto const b = is_self ? a : std::make_shared<cpu::SideWeights const>(marginals.b);
    return std::make_unique<cpu::EntropicOperator<T>>(std::move(costs), a, b, input.options.penalties, is_self,
                                                      workers_, input.options.cache_bytes);
  }

  /// An operator whose points have the order of a tree.
  template <class T>
  std::unique_ptr<EntropicOperator> make_ordered(OperatorInput const& input) const {
    using Points = cpu::PointCosts<T>;
    auto const* const of = static_cast<cpu::EntropicOperator<T> const*>(input.self.of);
    auto const& given = clouds_of(input.geometry);
    cpu::OrderedClouds const clouds =
        of ? cpu::OrderedClouds(given, of->data().ordering->of(input.self.side)) : cpu::OrderedClouds(given, threads_);
    auto const in_order = [&](Side side, std::vector<double> const& weights) {
      return std::make_shared<cpu::SideWeights const>(clouds.in_order(side, weights));
    };
    auto const a = of ? of->data().weights[static_cast<int>(input.self.side)] : in_order(Side::rows, input.marginals.a);
    auto const b = of ? a : in_order(Side::columns, input.marginals.b);
    auto const costs =
        of ? Points::self(clouds.clouds(), a->value, static_cast<Points const&>(*of->data().costs), input.self.side)
           : std::make_shared<Points const>(clouds.clouds(), a->value, b->value);
    return std::make_unique<cpu::EntropicOperator<T>>(costs, a, b, input.options.penalties, of != nullptr, workers_,
                                                      input.options.cache_bytes,
                                                      clouds.ordering(*costs, input.options.truncation));
  }

  int threads_;           // Threads of this rank.
  cpu::Workers workers_;  // Threads of all ranks.
  std::shared_ptr<Ranks> ranks_;
  cpu::Projection projection_;
  cpu::Assigner assigner_;
};

}  // namespace

std::shared_ptr<Backend> make_cpu_backend(int threads, std::optional<Communicator> communicator) {
  if (threads < 0 || threads > kMostThreads)
    throw Error(ErrorCode::invalid_argument, "threads: is " + std::to_string(threads) + "; must be from 0 to " +
                                                 std::to_string(kMostThreads) + " (0: all cores)");
  if (threads == 0) threads = std::min(omp_get_max_threads(), kMostThreads);
  if (!communicator) return std::make_shared<CpuBackend>(threads, nullptr);
  auto const ranks = std::make_shared<Ranks>(std::move(*communicator));
  Digests inputs;
  inputs.add("device", "CPU");
  inputs.add("threads", threads);
  inputs.add("version", version());
  inputs.add("instruction_set", cpu::instruction_set());
  ranks->run("Context::distributed", inputs, [] {});
  return std::make_shared<CpuBackend>(threads, ranks->size() > 1 ? ranks : nullptr);
}

}  // namespace monge
