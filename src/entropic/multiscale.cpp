#include "entropic/multiscale.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/stopwatch.hpp"
#include "geometry/point_tree.hpp"
#include "geometry/validation.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

/// The factor of eps from a stage to the one before.
constexpr double kFactor = 4;
/// The largest root mean square radius of the points that a coarse one stands for, in units of sqrt(eps / scale).
constexpr double kRadius = 1. / 3;
/// Clouds with at most this product of sizes are solved by all pairs. The first stage is such a one.
constexpr double kFewPairs = 4e6;
/// A stage on coarse clouds at the last eps has at most this fraction of the pairs.
constexpr double kWorthwhile = 0.25;
/// The relative marginal error at which a stage ends: its potentials are continued in eps, which amplifies errors. At
/// the last eps it is a fraction of the tolerance.
constexpr double kStageError = 3e-4, kLastStage = 0.25;
/// The most passes of a stage, whose potentials need not be right.
constexpr int kStagePasses = 300;

/// The parts in which threads cut a tree, and the pairs of a pass in the time to join or cut a node.
constexpr std::int64_t kPartsOfCut = 64, kPairsOfNode = 64;

/// Points with masses, and with labels if the problem has them.
struct Cloud {
  std::vector<double> points, mass;
  std::vector<std::int64_t> labels;

  std::int64_t size() const { return std::ssize(mass); }
};

/// The nodes of a cloud's tree, with their masses, their centres and the moments of inertia about these.
class CloudTree {
 public:
  CloudTree(MatrixView points, IndexView labels, std::vector<double> const& weights, PointOrder const& order,
            int threads)
      : tree_(points.rows(), 1), dimension_(points.columns()), labels_(in_order(labels, order)) {
    centre_ = in_order(points, order, threads);
    centre_.resize(to_size(tree_.nodes() * dimension_));
    mass_.resize(to_size(tree_.nodes()));
    inertia_.resize(to_size(tree_.nodes()));
    parallel_for(useful_threads(threads, points.rows(), 1), points.rows(),
                 [&](std::int64_t place) { mass_[to_size(place)] = weights[to_size(order.point[to_size(place)])]; });
    for (int height = 1; height < tree_.heights(); ++height) {
      parallel_for(useful_threads(threads, tree_.nodes(height), kPairsOfNode), tree_.nodes(height),
                   [&](std::int64_t q) { join(height, q); });
    }
  }

  /// The nodes nearest to the root whose points have one label and at most this root mean square distance from their
  /// centre.
  Cloud cut(double radius, int threads) const {
    int least_height = tree_.heights() - 1;
    while (least_height > 0 && tree_.nodes(least_height) < kPartsOfCut) --least_height;
    std::vector<Node> roots;
    split(tree_.heights() - 1, 0, radius * radius, least_height, roots);
    std::vector<Cloud> parts(roots.size());
    parallel_for(useful_threads(threads, tree_.nodes(0), kPairsOfNode), std::ssize(roots), [&](std::int64_t k) {
      add(roots[to_size(k)].height, roots[to_size(k)].q, radius * radius, parts[to_size(k)]);
    });
    Cloud cloud;
    for (Cloud const& part : parts) {
      cloud.points.insert(cloud.points.end(), part.points.begin(), part.points.end());
      cloud.mass.insert(cloud.mass.end(), part.mass.begin(), part.mass.end());
      cloud.labels.insert(cloud.labels.end(), part.labels.begin(), part.labels.end());
    }
    return cloud;
  }

 private:
  void join(int height, std::int64_t q) {
    std::size_t const node = to_size(tree_.index(height, q)), first = to_size(tree_.index(height - 1, 2 * q));
    std::size_t const second = first + 1, d = to_size(dimension_);
    bool const has_second = 2 * q + 1 < tree_.nodes(height - 1);
    double const other = has_second ? mass_[second] : 0;
    double const mass = mass_[node] = mass_[first] + other;
    double const share = mass > 0 ? other / mass : 0;
    double square = 0;
    for (std::size_t k = 0; k < d; ++k) {
      double const apart = has_second ? centre_[second * d + k] - centre_[first * d + k] : 0;
      centre_[node * d + k] = centre_[first * d + k] + share * apart;
      square += apart * apart;
    }
    inertia_[node] = inertia_[first] + (has_second ? inertia_[second] : 0) + mass_[first] * share * square;
  }

  struct Node {
    int height;
    std::int64_t q;
  };

  bool is_small(int height, std::int64_t q, double square) const {
    std::size_t const node = to_size(tree_.index(height, q));
    bool const has_one_label =
        labels_.empty() || label(height, q) == labels_[to_size(tree_.first_point(height, q + 1) - 1)];
    return height == 0 || (has_one_label && inertia_[node] <= square * mass_[node]);
  }
  /// The label of the first point of a node.
  std::int64_t label(int height, std::int64_t q) const { return labels_[to_size(tree_.first_point(height, q))]; }

  /// The nodes of a height in a cut of the tree below a node, or the members of the cut above them.
  void split(int height, std::int64_t q, double square, int least_height, std::vector<Node>& out) const {
    if (height <= least_height || is_small(height, q, square)) return out.push_back({height, q});
    split(height - 1, 2 * q, square, least_height, out);
    if (2 * q + 1 < tree_.nodes(height - 1)) split(height - 1, 2 * q + 1, square, least_height, out);
  }

  void add(int height, std::int64_t q, double square, Cloud& cloud) const {
    std::size_t const node = to_size(tree_.index(height, q)), d = to_size(dimension_);
    if (mass_[node] == 0) return;
    if (is_small(height, q, square)) {
      cloud.mass.push_back(mass_[node]);
      if (!labels_.empty()) cloud.labels.push_back(label(height, q));
      for (std::size_t k = 0; k < d; ++k) cloud.points.push_back(centre_[node * d + k]);
      return;
    }
    add(height - 1, 2 * q, square, cloud);
    if (2 * q + 1 < tree_.nodes(height - 1)) add(height - 1, 2 * q + 1, square, cloud);
  }

  TileTree tree_;
  std::int64_t dimension_;
  std::vector<std::int64_t> labels_;             // In the order of the points; empty without labels.
  std::vector<double> centre_, mass_, inertia_;  // Nodes in the order of TileTree::index().
};

/// A problem on the way to the caller's.
struct Stage {
  double eps;
  Cloud x, y;
  double tolerance;

  double pairs() const { return static_cast<double>(x.size()) * static_cast<double>(y.size()); }
};

double pairs_of(PointCloud const& clouds) {
  return static_cast<double>(clouds.x.rows()) * static_cast<double>(clouds.y.rows());
}

/// The stages from the last one to the first. `clouds`: those of the problem, in host memory.
std::vector<Stage> stages_of(SinkhornProblem const& problem, PointCloud const& clouds, PointOrders const& orders,
                             int threads) {
  CloudTree const x(clouds.x, clouds.labels.x, problem.marginals.a, *orders.of[0], threads);
  CloudTree const y(clouds.y, clouds.labels.y, problem.marginals.b, *orders.of[1], threads);
  double const tolerance = problem.options.tolerance, top = problem.entropic->cost_size().centred_bound;
  std::vector<Stage> stages;
  for (double eps = problem.options.eps;; eps *= kFactor) {
    double const radius = kRadius * std::sqrt(eps / clouds.scale);
    bool const is_last = eps == problem.options.eps;
    Stage stage{eps, x.cut(radius, threads), y.cut(radius, threads),
                is_last && tolerance > 0 ? kLastStage * tolerance : kStageError};
    bool const is_worthwhile = !is_last || stage.pairs() <= kWorthwhile * pairs_of(clouds);
    bool const is_first = (is_worthwhile && stage.pairs() <= kFewPairs) || eps >= top;
    if (is_worthwhile) stages.push_back(std::move(stage));
    if (is_first) return stages;
  }
}

/// The problem of a stage, without its operator.
SinkhornProblem problem_of(Stage const& stage, SinkhornProblem const& last) {
  SinkhornProblem result;
  PointCloud clouds = clouds_of(last.geometry);
  std::int64_t const d = clouds.x.columns();
  clouds.x = MatrixView(stage.x.points.data(), stage.x.size(), d);
  clouds.y = MatrixView(stage.y.points.data(), stage.y.size(), d);
  clouds.labels.x = {stage.x.labels.data(), std::ssize(stage.x.labels)};
  clouds.labels.y = {stage.y.labels.data(), std::ssize(stage.y.labels)};
  result.geometry = clouds;
  result.marginals = last.marginals;
  result.marginals.a = stage.x.mass;
  result.marginals.b = stage.y.mass;
  result.options = last.options;
  result.options.eps = stage.eps;
  result.options.tolerance = stage.tolerance;
  result.options.criterion = Criterion::l1;
  result.options.certificate = false;
  result.options.iterations = std::min(last.options.iterations, kStagePasses);
  result.options.progress = {};
  if (stage.pairs() > kFewPairs) result.truncation = truncation_to(stage.tolerance);
  return result;
}

/// The plan of a stage.
struct Solved {
  std::unique_ptr<PlanOperator> plan;
  double eps = 0;

  /// The potential at the points of one side.
  std::vector<double> potential(Side side, PointCloud const& clouds, PointOrders const& orders,
                                Penalties const& penalties) const {
    bool const of_rows = side == Side::rows;
    NewPoints const points{of_rows ? clouds.x : clouds.y, of_rows ? clouds.labels.x : clouds.labels.y,
                           orders.of[static_cast<int>(side)]};
    std::vector<double> values(to_size(points.points.rows()));
    plan->points().at(side, points)->transform(side, MutableVectorView(values));
    for (double& value : values) value /= 1 + eps / penalties.of(side);
    return values;
  }
};

/// Starts an operator from the stages before. Potentials are smooth functions of eps where eps is small: those of two
/// stages are continued as a line.
void start_from(Solved const& last, Solved const& before, PointOrders const& orders, SinkhornProblem& problem) {
  PointCloud const& clouds = clouds_of(problem.geometry);
  Penalties const penalties = penalties_of(problem.options);
  double const eps = problem.options.eps;
  std::vector<double> potentials[2];
  for (Side const side : kSides) {
    std::vector<double>& potential = potentials[static_cast<int>(side)];
    potential = last.potential(side, clouds, orders, penalties);
    if (!before.plan || eps == last.eps) continue;
    std::vector<double> const earlier = before.potential(side, clouds, orders, penalties);
    double const factor = (eps - last.eps) / (last.eps - before.eps);
    for (std::size_t i = 0; i < potential.size(); ++i) potential[i] += factor * (potential[i] - earlier[i]);
  }
  problem.entropic->set_potentials(VectorView(potentials[0]), VectorView(potentials[1]));
}

}  // namespace

void start_from_coarse(Backend const& backend, SinkhornProblem& problem, int index) {
  PointCloud const& clouds = clouds_of(problem.geometry);
  if (pairs_of(clouds) <= kFewPairs || problem.entropic->is_self()) return;
  Penalties const penalties = penalties_of(problem.options);
  std::vector<std::vector<double>> copies;
  Geometry const on_this_host = on_host(backend, problem.geometry, copies);
  PointCloud of_trees = clouds_of(on_this_host);
  std::vector<std::int64_t> const labels[2] = {read_labels(backend, clouds.labels.x),
                                               read_labels(backend, clouds.labels.y)};
  of_trees.labels.x = {labels[0].data(), std::ssize(labels[0])};
  of_trees.labels.y = {labels[1].data(), std::ssize(labels[1])};
  PointOrders const orders = backend.orders(*problem.entropic);
  std::vector<Stage> stages = stages_of(problem, of_trees, orders, host_threads(backend));
  Stopwatch const watch;
  bool goes_on = true;
  Solved last, before;
  for (; !stages.empty() && goes_on; stages.pop_back()) {
    SinkhornProblem stage = problem_of(stages.back(), problem);
    stage.entropic = backend.entropic_operator(stage.geometry, stage.marginals, first_operator(stage));
    double const eps = stage.options.eps;
    if (last.plan) start_from(last, before, backend.orders(*stage.entropic), stage);
    if (problem.options.progress) {
      stage.options.progress = [&](Progress const& of_stage) {
        Progress progress = of_stage;
        progress.iteration += problem.report.coarse_iterations;
        progress.seconds = watch.seconds();
        progress.problem = index;
        progress.potentials = [&] {
          Solved const present{stage.entropic->plan(of_stage.eps), of_stage.eps};
          return Potentials{present.potential(Side::rows, clouds, orders, penalties),
                            present.potential(Side::columns, clouds, orders, penalties)};
        };
        return goes_on = problem.options.progress(progress);
      };
    }
    run_sinkhorn(backend, {&stage, 1});
    problem.report.coarse_iterations += stage.report.iterations;
    if (eps != last.eps) before = std::move(last);
    last = {stage.entropic->plan(eps), eps};
  }
  if (!last.plan) return;
  start_from(last, before, orders, problem);
  if (!goes_on) problem.options.progress = [](Progress const&) { return false; };
}

}  // namespace monge
