// How far apart are two labelled data sets? OTDD (Alvarez-Melis and Fusi, 2020; FlashSinkhorn, eq. 32-34) compares
// points and what their labels mean: the Sinkhorn divergence of the clouds under
//
//   C_ij = |x_i - y_j|^2 / 2 + W[l_i, l_j] / 2,     W[k, l] the divergence of the points of class k and class l,
//
// so classes of different sets need no common names. The gradient of it in x moves one data set to the other, each
// class to one that is like it.
//
//   otdd                         on small synthetic data
//   otdd FOLDER [STEPS]          x.npy, labels_x.npy, y.npy, labels_y.npy (float32, int64 from 0 up, sorted); results
//   there
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <monge/monge.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "dataset.hpp"
#include "npy.hpp"

namespace {

constexpr double kEps = 0.02;  // where the mean |x - y|^2 is about 1
constexpr double kStep = 0.2;  // of the way that each point would like to go

/// Three Gaussian classes on a circle; `turn` says where they begin.
Dataset synthetic_dataset(double turn, unsigned seed) {
  Dataset data{150, 2, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < data.size; ++i) {
    data.labels.push_back(i / 50);
    double const angle = turn + 2.1 * static_cast<double>(i / 50);
    data.points.push_back(static_cast<float>(0.7 * std::cos(angle) + 0.1 * normal(random)));
    data.points.push_back(static_cast<float>(0.7 * std::sin(angle) + 0.1 * normal(random)));
  }
  return data;
}

/// W of all classes, those of the source first: (V1 + V2) x (V1 + V2), from one batch of small problems.
std::vector<double> class_distances(monge::Context const& context, Dataset const& source, Dataset const& target) {
  std::vector<monge::MatrixView> classes;
  for (Dataset const* data : {&source, &target}) {
    for (std::int64_t label = 0; label < data->classes(); ++label) classes.push_back(data->of_class(label));
  }
  std::vector<monge::BatchProblem> problems;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    for (std::size_t l = 0; l <= k; ++l) problems.push_back({monge::PointCloud{classes[k], classes[l]}});
  }
  std::vector<monge::Plan> const plans = monge::solve_batch(context, problems, {.eps = kEps, .tolerance = 1e-4});
  auto const value = [&](std::size_t k, std::size_t l) {
    return plans[std::max(k, l) * (std::max(k, l) + 1) / 2 + std::min(k, l)].report().dual;
  };
  std::vector<double> w;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    for (std::size_t l = 0; l < classes.size(); ++l) w.push_back(value(k, l) - (value(k, k) + value(l, l)) / 2);
  }
  return w;
}

/// How much of each class of x goes to each class of y: V1 x V2.
std::vector<double> class_coupling(monge::Plan const& plan, Dataset const& source, Dataset const& target) {
  std::int64_t const columns = target.classes();
  std::vector<double> is_of_class(target.size * columns), to_class(source.size * columns);
  for (std::int64_t j = 0; j < target.size; ++j) is_of_class[j * columns + target.labels[j]] = 1;
  plan.apply({is_of_class.data(), target.size, columns}, {to_class.data(), source.size, columns});
  std::vector<double> coupling(source.classes() * columns);
  for (std::int64_t i = 0; i < source.size; ++i) {
    for (std::int64_t l = 0; l < columns; ++l) coupling[source.labels[i] * columns + l] += to_class[i * columns + l];
  }
  return coupling;
}

/// The mean over classes of the largest share that goes to one class.
double concentration(std::vector<double> const& coupling, std::int64_t classes) {
  double sum = 0, total = 0;
  for (auto row = coupling.begin(); row != coupling.end(); row += classes) {
    sum += *std::max_element(row, row + classes) / std::accumulate(row, row + classes, 0.0);
    ++total;
  }
  return sum / total;
}

}  // namespace

int main(int count, char** arguments) {
  std::string const folder = count > 1 ? arguments[1] : "";
  int const steps = count > 2 ? std::atoi(arguments[2]) : 20;
  monge::Context const context =
      monge::cuda_unavailable_reason().empty() ? monge::Context::cuda() : monge::Context::cpu();
  Dataset source = folder.empty() ? synthetic_dataset(0, 1) : read_dataset(folder, "x");
  Dataset const target = folder.empty() ? synthetic_dataset(0.5, 2) : read_dataset(folder, "y");

  std::vector<double> const w = class_distances(context, source, target);
  std::int64_t const classes = source.classes() + target.classes();
  std::vector<std::int64_t> labels_y = target.labels;  // in W
  for (std::int64_t& label : labels_y) label += source.classes();
  monge::Labels const labels{.x = {source.labels.data(), source.size},
                             .y = {labels_y.data(), target.size},
                             .cost = {w.data(), classes, classes},
                             .weight = 0.5};
  monge::SolveOptions const options{.eps = kEps, .tolerance = 1e-4};
  auto const divergence_of = [&](monge::Labels const& given) {
    monge::PointCloud const clouds{.x = source.view(), .y = target.view(), .scale = 0.5, .labels = given};
    return monge::sinkhorn_divergence(context, clouds, {}, {}, options);
  };

  std::vector<double> values;  // OTDD after each step
  std::vector<float> path;     // of the first point of each class
  std::vector<float> gradient(source.points.size());
  double points_before = 0;
  for (int step = 0; step <= steps; ++step) {
    monge::Divergence const divergence = divergence_of(labels);
    values.push_back(divergence.value);
    for (std::int64_t label = 0; label < source.classes(); ++label) {
      float const* const first = source.of_class(label).as<float>();
      path.insert(path.end(), first, first + source.dimension);
    }
    if (step == 0) {
      monge::Divergence const of_points = divergence_of({});
      points_before = of_points.value;
      std::vector<double> const plain = class_coupling(of_points.ab, source, target);
      std::vector<double> const labelled = class_coupling(divergence.ab, source, target);
      std::printf("each class goes to one other with a share of %.3f by points, %.3f with labels\n",
                  concentration(plain, target.classes()), concentration(labelled, target.classes()));
      if (!folder.empty()) {
        npy::write(folder + "/coupling_without_labels.npy", {source.classes(), target.classes()}, plain);
        npy::write(folder + "/coupling.npy", {source.classes(), target.classes()}, labelled);
        npy::write(folder + "/W.npy", {classes, classes}, w);
      }
    }
    if (step == steps) break;
    divergence.gradients({.x = {gradient.data(), source.size, source.dimension}});
    // A point of weight 1 / n feels n times the gradient.
    float const step_size = static_cast<float>(kStep * static_cast<double>(source.size));
    for (std::size_t e = 0; e < gradient.size(); ++e) source.points[e] -= step_size * gradient[e];
  }
  std::printf("OTDD %.5f, after %d steps %.5f; of the points alone %.5f, then %.5f\n", values.front(), steps,
              values.back(), points_before, divergence_of({}).value);
  if (!folder.empty()) {
    npy::write(folder + "/values.npy", {steps + 1}, values);
    npy::write(folder + "/path.npy", {steps + 1, source.classes(), source.dimension}, path);
  }
}
