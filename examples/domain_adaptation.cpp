// Labels for points that have none. Transport takes labelled source points, the rows, to unlabelled target points, the
// columns, that have moved as a whole. The class of a target is the one that it takes most mass from, and the
// barycentric map takes the source, with its labels, to where a classifier for the targets can learn from it (Courty et
// al., 2016; Lindback et al., 2023, section 5). Four plans of the same costs, |x - y|^2 / 2 with a largest entry of 1:
//
//   none         a vertex, or close to one: few entries a row
//   entropy      dense: every target takes mass from every class, and the map shrinks towards the centres
//   quadratic    sparse, but classes mix
//   group lasso  lambda sum_j sum_g |(X_ij), i of class g|_2: a target takes its mass from few classes, mostly one
//
//   domain_adaptation                                          on small synthetic data
//   domain_adaptation FOLDER [ENTROPY QUADRATIC GROUP_LASSO]   x.npy, labels_x.npy, y.npy, labels_y.npy (float32, int64
//                                                              from 0 up, sorted), weights; results there. labels_y
//                                                              only tell how well it went.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <monge/monge.hpp>
#include <random>
#include <string>
#include <vector>

#include "dataset.hpp"
#include "npy.hpp"

namespace {

constexpr double kMixed = 0.01;       // A class counts for a target that takes more of its mass from it.
constexpr double kNegligible = 1e-6;  // An entry counts where it is more of the mass of its row.

/// Three Gaussian classes on a line, 2 apart with the deviation 0.5; the target is sheared and moved.
Dataset synthetic_dataset(bool is_target, std::int64_t per_class, unsigned seed) {
  Dataset data{3 * per_class, 2, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.5);
  for (std::int64_t i = 0; i < data.size; ++i) {
    data.labels.push_back(i / per_class);
    double const x = 2.0 * static_cast<double>(i / per_class) + normal(random), y = normal(random);
    data.points.push_back(static_cast<float>(is_target ? 0.9 * x + 0.5 * y + 3 : x));
    data.points.push_back(static_cast<float>(is_target ? 0.3 * x + 1.2 * y - 1 : y));
  }
  return data;
}

/// |x_i - y_j|^2 / 2 (n x m), of rows one after another.
std::vector<float> costs(monge::MatrixView const& x, monge::MatrixView const& y) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    for (std::int64_t j = 0; j < y.rows(); ++j) {
      float square = 0;
      for (std::int64_t k = 0; k < x.columns(); ++k) {
        float const difference = x.as<float>()[i * x.columns() + k] - y.as<float>()[j * x.columns() + k];
        square += difference * difference;
      }
      result.push_back(square / 2);
    }
  }
  return result;
}

/// W_2 of the points of each class of x and the same class of y: optimal transport without a regulariser.
std::vector<double> class_distances(monge::Context const& context, Dataset const& x, Dataset const& y) {
  std::vector<std::vector<float>> matrices;
  std::vector<monge::RegularizedProblem> problems;
  for (std::int64_t label = 0; label < x.classes(); ++label) {
    monge::MatrixView const from = x.of_class(label), to = y.of_class(label);
    matrices.push_back(costs(from, to));
    problems.push_back({monge::CostMatrix{{matrices.back().data(), from.rows(), to.rows()}}});
  }
  std::vector<double> distances;
  for (monge::RegularizedPlan const& plan : monge::solve_regularized_batch(context, problems, {}))
    distances.push_back(std::sqrt(2 * plan.report().transport_cost));
  return distances;
}

struct Adaptation {
  double accuracy = 0, classes = 0, entries = 0, distance = 0;
};

/// What a plan is good for; a Plan of solve() and a RegularizedPlan answer the same questions.
template <class AnyPlan>
Adaptation adapt(monge::Context const& context, AnyPlan const& plan, Dataset const& x, Dataset const& y,
                 std::string const& path) {
  std::int64_t const n = x.size, m = y.size, classes = x.classes();
  Adaptation result;
  std::vector<float> is_of_class(n * classes), taken(m * classes);
  for (std::int64_t i = 0; i < n; ++i) is_of_class[i * classes + x.labels[i]] = 1;
  plan.apply_transpose({is_of_class.data(), n, classes}, {taken.data(), m, classes});
  for (std::int64_t j = 0; j < m; ++j) {
    auto const shares = taken.begin() + j * classes;
    auto const largest = std::max_element(shares, shares + classes) - shares;
    result.accuracy += (largest == y.labels[j]) / static_cast<double>(m);
    auto const counts = [&](float share) { return share * static_cast<double>(m) > kMixed; };
    result.classes += static_cast<double>(std::count_if(shares, shares + classes, counts)) / static_cast<double>(m);
  }

  std::vector<float> dense(n * m);
  plan.dense({dense.data(), n, m});
  auto const counts = [&](float entry) { return entry * static_cast<double>(n) > kNegligible; };
  result.entries = static_cast<double>(std::count_if(dense.begin(), dense.end(), counts)) / static_cast<double>(n);

  Dataset mapped = x;
  plan.barycentric_projection(y.view(), {mapped.points.data(), n, x.dimension});
  for (double const distance : class_distances(context, mapped, y))
    result.distance += distance / static_cast<double>(classes);
  if (!path.empty()) {
    npy::write(path + "_plan.npy", {n, m}, dense);
    npy::write(path + "_map.npy", {n, x.dimension}, mapped.points);
  }
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  std::string const folder = count > 1 ? arguments[1] : "";
  auto const weight = [&](int at, double otherwise) { return count > at ? std::atof(arguments[at]) : otherwise; };
  monge::Context const context =
      monge::cuda_unavailable_reason().empty() ? monge::Context::cuda() : monge::Context::cpu();
  Dataset const source = folder.empty() ? synthetic_dataset(false, 50, 1) : read_dataset(folder, "x");
  Dataset const target = folder.empty() ? synthetic_dataset(true, 40, 2) : read_dataset(folder, "y");
  std::vector<float> cost = costs(source.view(), target.view());
  float const largest = *std::max_element(cost.begin(), cost.end());
  for (float& entry : cost) entry /= largest;
  monge::CostMatrix const matrix{{cost.data(), source.size, target.size}};

  std::vector<double> table;
  auto const report = [&](char const* name, auto const& plan, std::string const& file) {
    Adaptation const found = adapt(context, plan, source, target, folder.empty() ? "" : folder + "/" + file);
    std::printf("%-11s accuracy %.3f, classes a target %.2f, entries a row %.2f, W2 %.4f; %.2f s\n", name,
                found.accuracy, found.classes, found.entries, found.distance, plan.report().seconds.total);
    table.insert(table.end(), {found.accuracy, found.classes, found.entries, found.distance});
  };
  auto const report_regularized = [&](char const* name, monge::Regularizer const& h, std::string const& file) {
    report(name, monge::solve_regularized(context, matrix, {}, {}, h), file);
  };
  report_regularized("none", {}, "none");
  report("entropy", monge::solve(context, matrix, {.eps = weight(2, 0.02)}), "entropy");
  report_regularized("quadratic", {.quadratic = weight(3, 30)}, "quadratic");
  report_regularized("group lasso", {.group_lasso = weight(4, 0.02), .groups = {source.labels.data(), source.size}},
                     "group_lasso");
  if (!folder.empty()) npy::write(folder + "/table.npy", {4, 4}, table);
}
