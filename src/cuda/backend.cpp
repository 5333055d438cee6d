// The CUDA backend: finds usable devices and makes operators on one of them.
#include "cuda/backend.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>

#include <monge/error.hpp>

#include "core/overloaded.hpp"
#include "core/problem_error.hpp"
#include "core/require.hpp"
#include "cuda/assignment/operator.hpp"
#include "cuda/entropic/entropic_operator.hpp"
#include "cuda/entropic/mixture.hpp"
#include "cuda/entropic/sweeper.hpp"
#include "cuda/geometry/matrix_costs.hpp"
#include "cuda/geometry/point_costs.hpp"
#include "cuda/launch/batch.hpp"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/pass_times.hpp"
#include "cuda/plan/plan_operator.hpp"
#include "cuda/projection/operator.hpp"
#include "cuda/regularized/quadratic_operator.hpp"
#include "cuda/regularized/splitting_operator.hpp"
#include "cuda/tiles/cloud_tree.hpp"
#include "geometry/validation.hpp"
#include "seam/values.hpp"

namespace monge::cuda {
namespace {

/// The oldest compute capability with code in this build: it has asynchronous copies and fp16 products of 16 x 8 x 16.
constexpr int kOldestMajor = 8;

/// The number of usable devices, or the reason why there is none.
struct Survey {
  int usable = 0;
  std::string reason;
};

Survey survey() {
  int count = 0;
  cudaError_t const code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return {0, std::string("no CUDA device: ") + (code == cudaSuccess ? "none found" : cudaGetErrorString(code))};
  }
  // CUDA lists the most capable devices first, so the usable devices come first.
  Survey result;
  for (; result.usable < count; ++result.usable) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, result.usable) != cudaSuccess ||
        major < kOldestMajor)
      break;
  }
  if (result.usable == 0) result.reason = "no CUDA device of compute capability 8.0 or newer";
  return result;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(CudaOptions const& options, std::shared_ptr<Ranks> ranks = nullptr)
      : ranks_(ranks),
        runtime_(std::make_shared<Runtime const>(options, std::move(ranks))),
        projection_(runtime_),
        assignment_(runtime_) {}

  Ranks* ranks() const override { return ranks_.get(); }
  Device device() const override { return {DeviceType::cuda, runtime_->index()}; }
  PassTimes pass_times(Geometry const& geometry, double) const override {
    PassTimes times = cuda::pass_times(geometry, {runtime_->multiprocessors(), runtime_->float64_ratio()});
    if (ranks_) times.newton_on_host = false;  // Hosts may differ, and with them the bits of the ranks.
    return times;
  }

  MemoryCount& memory() const override { return runtime_->memory(); }

  DeviceInfo info() const override {
    return {.device = device(),
            .name = runtime_->name(),
            .instruction_set = runtime_->instruction_set(),
            .units = runtime_->multiprocessors(),
            .memory_bytes = runtime_->memory_bytes()};
  }

  std::vector<double> read(MatrixView view) const override {
    DeviceGuard const guard(runtime_->index());
    return host_copy(*runtime_, view);
  }

  std::vector<std::unique_ptr<monge::EntropicOperator>> entropic_operators(
      std::span<OperatorInput const> inputs) const override {
    DeviceGuard const guard(runtime_->index());
    Together together(runtime_, inputs.size());
    std::vector<std::unique_ptr<monge::EntropicOperator>> operators;
    NewCosts fresh;
    for_each_problem(inputs.size(), [&](std::size_t i) {
      together.next_problem();
      Problem problem = make_problem(inputs[i], inputs.size(), fresh, together.queue());
      operators.push_back(
          std::make_unique<EntropicOperator>(std::move(problem), inputs[i].options.cache_bytes, together.queue()));
    });
    together.launch();
    finish(fresh, inputs);
    for_each_problem(inputs.size(), [&](std::size_t i) {
      auto& entropic = static_cast<EntropicOperator&>(*operators[i]);
      if (inputs[i].options.truncation > 0 || entropic.problem().ordering)
        entropic.order(ordering_of(inputs[i], entropic.problem()));
    });
    return operators;
  }

  std::unique_ptr<CloudTree> tree(monge::EntropicOperator const& entropic, OperatorInput const& input,
                                  Side side) const override {
    DeviceGuard const guard(runtime_->index());
    Problem const& problem = static_cast<EntropicOperator const&>(entropic).problem();
    Labels const& labels = clouds_of(input.geometry).labels;
    PointValues const features = problem.costs->of_points()->features(side);
    return cloud_tree(runtime_, problem.ordering->of(side).points(), features.dimension, features.centre,
                      problem.weights[side_index(side)]->weight(),
                      read_labels(*this, side == Side::rows ? labels.x : labels.y));
  }

  void add_transform(Side side, double factor, monge::PlanOperator& plan, monge::EntropicOperator& to) const override {
    DeviceGuard const guard(runtime_->index());
    static_cast<PlanOperator&>(plan).add_transform(side, factor, on_device(to.potential(side)));
  }

  /// At an eps far above all costs the plan is the product of the weights.
  double mean_cost(PointCloud const& clouds, Marginals const& marginals) const override {
    std::unique_ptr<monge::EntropicOperator> const entropic =
        entropic_operator(clouds, marginals, {.precision = Precision::float64});
    double const bound = entropic->cost_size().bound_of_all;
    Evaluation const value = entropic->evaluate(bound > 0 ? 0x1p60 * bound : 1.0);
    return value.transport_cost / value.mass;
  }

  std::unique_ptr<monge::Sweeper> sweeper() const override { return std::make_unique<Sweeper>(runtime_); }

  void renew(std::unique_ptr<monge::EntropicOperator>& entropic, OperatorInput const& input) const override {
    if (input.options.truncation > 0) return EntropicBackend::renew(entropic, input);
    static_cast<EntropicOperator&>(*entropic).renew(input.geometry, input.marginals);
  }

  void evaluate(std::span<EvaluationStep> steps) const override {
    EntropicOperator::evaluate_together(runtime_, steps);
  }

  std::vector<std::unique_ptr<monge::PlanOperator>> plans(std::span<PlanInput const> inputs) const override {
    DeviceGuard const guard(runtime_->index());
    Together together(runtime_, inputs.size());
    std::vector<std::unique_ptr<monge::PlanOperator>> plans;
    for (PlanInput const& input : inputs) {
      together.next_problem();
      plans.push_back(static_cast<EntropicOperator const*>(input.entropic)->plan(input.eps, input.t, together.queue()));
    }
    together.launch();
    return plans;
  }

  std::vector<std::shared_ptr<monge::RegularizedCosts const>> regularized_costs(
      std::span<RegularizedInput const> inputs) const override {
    DeviceGuard const guard(runtime_->index());
    std::vector<std::shared_ptr<RegularizedCosts>> costs;
    Together surveys(runtime_, inputs.size());
    for_each_problem(inputs.size(), [&](std::size_t i) {
      surveys.next_problem();
      costs.push_back(std::make_shared<RegularizedCosts>(runtime_, inputs[i]));
      costs.back()->survey(surveys.queue());
    });
    surveys.launch();
    std::vector<std::size_t> open(costs.size());
    std::iota(open.begin(), open.end(), std::size_t{0});
    for (;;) {
      std::erase_if(open, [&](std::size_t i) {
        bool goes_on = false;
        for_problem(i, [&] { goes_on = costs[i]->finish_survey(); });
        return !goes_on;
      });
      if (open.empty()) return {costs.begin(), costs.end()};
      Together next(runtime_, open.size());
      for (std::size_t const i : open) {
        next.next_problem();
        costs[i]->survey(next.queue());
      }
      next.launch();
    }
  }

  std::vector<std::unique_ptr<monge::SplittingOperator>> splitting_operators(
      std::span<SplittingInput const> inputs) const override {
    DeviceGuard const guard(runtime_->index());
    std::vector<std::unique_ptr<monge::SplittingOperator>> operators;
    Together packs(runtime_, inputs.size());
    for_each_problem(inputs.size(), [&](std::size_t i) {
      packs.next_problem();
      operators.push_back(
          std::make_unique<SplittingOperator>(own(inputs[i].costs), inputs[i].precision, packs.queue()));
    });
    packs.launch();
    return operators;
  }
  void iterate(std::span<SplittingStep> steps) const override { SplittingOperator::iterate_together(runtime_, steps); }
  std::unique_ptr<monge::QuadraticOperator> quadratic_operator(
      std::shared_ptr<monge::RegularizedCosts const> costs) const override {
    DeviceGuard const guard(runtime_->index());
    return std::make_unique<QuadraticOperator>(own(costs));
  }

  void mix(VectorOperations const&, Vector const& image_f, Vector const& image_g, Mixture& mixture, Vector& f,
           Vector& g) const override {
    cuda::mix(runtime_, image_f, image_g, mixture, f, g);
  }

  ProjectionOperator const& projection() const override { return projection_; }
  AssignmentOperator const& assignment() const override { return assignment_; }

  Runtime const& runtime() const { return *runtime_; }

 private:
  /// Costs that this backend has made.
  static std::shared_ptr<RegularizedCosts const> own(std::shared_ptr<monge::RegularizedCosts const> const& costs) {
    return std::static_pointer_cast<RegularizedCosts const>(costs);
  }

  /// Costs under construction, by problem: point clouds to pack, matrices to survey; null if the problem has none.
  /// Findings of the clouds of problem i are at 2 i and 2 i + 1, the survey of its matrix at i.
  struct NewCosts {
    std::vector<std::shared_ptr<PointCosts>> clouds;
    FindingsMemory findings;
    std::vector<std::shared_ptr<MatrixCosts>> matrices;
    std::optional<DeviceArray<CostSurvey>> surveys;
    std::vector<std::shared_ptr<Weights>> usual;  // Weights of the first problem.
  };

  /// Most batches have the same weights in all problems. The weights of the first problem are made at once, before all
  /// steps of `queue`, so that the others can share them.
  std::shared_ptr<Weights> make_weights(std::vector<double> const& values, NewCosts& fresh, Queue const& queue) const {
    for (std::shared_ptr<Weights> const& known : fresh.usual) {
      if (known->host() == values) return known;
    }
    if (fresh.clouds.size() > 1) return std::make_shared<Weights>(runtime_, values, queue);
    return fresh.usual.emplace_back(std::make_shared<Weights>(runtime_, values, runtime_->stream()));
  }

  Problem make_problem(OperatorInput const& input, std::size_t count, NewCosts& fresh, Queue const& queue) const {
    Precision const precision = input.options.precision;
    DataType const scalar = precision == Precision::float64 ? DataType::float64 : DataType::float32;
    std::int64_t const place = std::ssize(fresh.clouds);
    std::shared_ptr<PointCosts>& packing = fresh.clouds.emplace_back();
    std::shared_ptr<MatrixCosts>& surveyed = fresh.matrices.emplace_back();
    if (input.twin) {
      Problem problem = static_cast<EntropicOperator const*>(input.twin)->problem();
      problem.costs = problem.costs->twin(input.geometry, scalar, queue);
      problem.precision = precision;
      problem.penalties = input.options.penalties;
      return problem;
    }
    Problem problem;
    problem.runtime = runtime_;
    problem.precision = precision;
    problem.penalties = input.options.penalties;
    if (input.self.of) {
      Problem const& of = static_cast<EntropicOperator const*>(input.self.of)->problem();
      PointCosts const& costs = static_cast<PointCosts const&>(*of.costs);
      if (costs.shares_clouds()) {
        problem.is_self = true;
        problem.costs = costs.self(input.self.side, queue);
        for (std::shared_ptr<Weights>& weights : problem.weights) weights = of.weights[side_index(input.self.side)];
        return problem;
      }
    }
    problem.weights[0] = make_weights(input.marginals.a, fresh, queue);
    problem.weights[1] = make_weights(input.marginals.b, fresh, queue);
    auto const& [a, b] = problem.weights;
    problem.costs = std::visit(
        Overloaded{[&](PointCloud const& clouds) -> std::shared_ptr<Costs const> {
                     if (!fresh.findings)
                       fresh.findings = std::make_shared<DeviceArray<CloudFindings> const>(
                           runtime_, 2 * static_cast<std::int64_t>(count));
                     packing =
                         std::make_shared<PointCosts>(runtime_, clouds, a->of_points(), b->of_points(), scalar,
                                                      fresh.findings, 2 * place, queue, input.options.truncation > 0);
                     return packing;
                   },
                   [&](CostMatrix const& matrix) -> std::shared_ptr<Costs const> {
                     if (!fresh.surveys) fresh.surveys.emplace(runtime_, static_cast<std::int64_t>(count));
                     surveyed = std::make_shared<MatrixCosts>(runtime_, matrix, a->of_points(), b->of_points(), scalar,
                                                              fresh.surveys->data() + place, queue);
                     return surveyed;
                   }},
        input.geometry);
    return problem;
  }

  /// The order of an input's points, whose packing has been checked.
  std::shared_ptr<Ordering const> ordering_of(OperatorInput const& input, Problem const& problem) const {
    auto const of = [](monge::EntropicOperator const& other) -> Ordering const& {
      return *static_cast<EntropicOperator const&>(other).problem().ordering;
    };
    if (input.twin) return twin_ordering(runtime_, of(*input.twin), *problem.costs);
    if (input.self.of) {
      auto const self = self_ordering(of(*input.self.of), input.self.side);
      return problem.is_self ? self : twin_ordering(runtime_, *self, *problem.costs);
    }
    return make_ordering(runtime_, *problem.costs, input.options.truncation, label_orders(clouds_of(input.geometry)));
  }

  /// The orders of points with labels, found on the host; without labels none.
  PointOrders label_orders(PointCloud const& clouds) const {
    if (clouds.labels.empty()) return {};
    auto const order = [&](MatrixView points, IndexView labels) {
      std::vector<std::vector<double>> copies;
      std::vector<std::int64_t> const of_points = read_labels(*this, labels);
      return std::make_shared<PointOrder const>(
          tree_order(on_host(*this, points, copies), {of_points.data(), std::ssize(of_points)}, host_threads(*this)));
    };
    return {{order(clouds.x, clouds.labels.x), order(clouds.y, clouds.labels.y)}};
  }

  /// Waits for the packing of clouds and the surveys of matrices. Throws ProblemError.
  void finish(NewCosts const& fresh, std::span<OperatorInput const> inputs) const {
    std::vector<CloudFindings> clouds;
    std::vector<CostSurvey> matrices;
    if (fresh.findings) clouds = download(*runtime_, fresh.findings->data(), fresh.findings->size());
    if (fresh.surveys) matrices = download(*runtime_, fresh.surveys->data(), fresh.surveys->size());
    for_each_problem(inputs.size(), [&](std::size_t i) {
      if (fresh.clouds[i]) {
        fresh.clouds[i]->finish(clouds_of(inputs[i].geometry), &clouds[2 * i]);
        fresh.clouds[i]->keep_scores(inputs[i].options.cache_bytes);
      }
      if (fresh.matrices[i]) fresh.matrices[i]->finish(matrices[i]);
    });
  }

  std::shared_ptr<Ranks> ranks_;
  std::shared_ptr<Runtime const> runtime_;
  Projection projection_;
  Assigner assignment_;
};

}  // namespace

std::shared_ptr<Backend> make_backend(CudaOptions const& options, std::optional<Communicator> communicator) {
  bool const allocates = options.allocator.allocate != nullptr, releases = options.allocator.release != nullptr;
  require(allocates == releases, "allocator: lacks {}; must have both functions, or neither",
          allocates ? "release" : "allocate");
  Survey const found = survey();
  std::string const device = "device: is cuda:" + std::to_string(options.index);
  if (found.usable == 0) throw Error(ErrorCode::unsupported, device + "; " + found.reason);
  if (options.index < 0 || options.index >= found.usable)
    throw Error(ErrorCode::unsupported,
                device + "; this machine has cuda:0 to cuda:" + std::to_string(found.usable - 1));
  if (!communicator) return std::make_shared<CudaBackend>(options);
  auto const ranks = std::make_shared<Ranks>(std::move(*communicator));
  cudaDeviceProp properties;
  MONGE_CUDA_TRY(cudaGetDeviceProperties(&properties, options.index));
  Digests inputs;
  inputs.add("device", properties.name);
  inputs.add("multiprocessors", properties.multiProcessorCount);
  inputs.add("version", version());
  inputs.add("instruction_set", properties.major);
  return ranks->run("Context::distributed", inputs,
                    [&] { return std::make_shared<CudaBackend>(options, ranks->size() > 1 ? ranks : nullptr); });
}

Runtime const& runtime_of(Context const& context) {
  return dynamic_cast<CudaBackend const&>(backend_of(context)).runtime();
}

int device_count() {
  return survey().usable;
}

std::string unavailable_reason() {
  return survey().reason;
}

}  // namespace monge::cuda
