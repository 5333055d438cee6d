// A generator that learns a distribution from samples alone. The loss is the mini-batch energy distance (Salimans et
// al., 2018; Lindback et al., 2023, Appendix G) of two batches X, X' of data and two batches Y, Y' of the generator,
//
//   L = OT(X, Y) + OT(X', Y) + OT(X, Y') + OT(X', Y') - 2 OT(X, X') - 2 OT(Y, Y'),
//
// OT with the costs |x - y|^2 / 2 and a quadratic regulariser: its six plans are one batch. The last two terms take
// away what batches of the same distribution are apart, so L is 0 on average where the distributions are equal. The
// derivative of OT by C is the plan P, and so by the points of one side
//
//   d OT(X, Y) / d y_j = sum_i P_ij (y_j - x_i).
//
// From there it goes back through the generator, a network 2 -> 32 -> 2 with tanh, and Adam takes a step.
//
//   energy_distance [BATCH STEPS [FOLDER]]     results to FOLDER
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <monge/monge.hpp>
#include <numbers>
#include <random>
#include <string>
#include <vector>

#include "descent.hpp"
#include "npy.hpp"

namespace {

using descent::Vector;

constexpr double kWeight = 0.5;  // of the quadratic term: three or four entries a row
constexpr double kTolerance = 1e-3;
constexpr double kRate = 0.02;  // of Adam at the start; it falls to 0 along a line
constexpr int kHidden = 32;
constexpr int kSnapshots = 5;
constexpr std::int64_t kShown = 400;  // samples in a snapshot and in the distance that is printed

/// Points in the plane, one after another: eight Gaussians on a circle.
Vector ring(std::int64_t size, std::mt19937& random) {
  Vector points = descent::normal(2 * size, 0.08, random);
  std::uniform_int_distribution<int> which(0, 7);
  for (std::int64_t i = 0; i < size; ++i) {
    double const angle = which(random) * std::numbers::pi / 4;
    points[2 * i] += std::cos(angle);
    points[2 * i + 1] += std::sin(angle);
  }
  return points;
}

/// y = b_2 + A_2 tanh(b_1 + A_1 z), z normal. The parameters are one vector: for each hidden unit two of A_1, one of
/// b_1 and two of A_2, and b_2 at the end.
class Generator {
 public:
  explicit Generator(std::mt19937& random) : parameters_(descent::normal(5 * kHidden + 2, 0.3, random)) {}

  void step(Vector const& by) { parameters_ = descent::sum(parameters_, 1, by); }
  std::size_t size() const { return parameters_.size(); }

  Vector operator()(Vector const& z) const {
    Vector y(z.size());
    for (std::size_t i = 0; i < z.size(); i += 2) {
      y[i] = parameters_[5 * kHidden];
      y[i + 1] = parameters_[5 * kHidden + 1];
      for (int unit = 0; unit < kHidden; ++unit) {
        double const* const of = &parameters_[5 * unit];
        double const hidden = std::tanh(of[0] * z[i] + of[1] * z[i + 1] + of[2]);
        y[i] += of[3] * hidden;
        y[i + 1] += of[4] * hidden;
      }
    }
    return y;
  }
  /// gradient += dL/dparameters, for dL/dy at the samples of z.
  void add_gradient(Vector const& z, Vector const& of_y, Vector& gradient) const {
    for (std::size_t i = 0; i < z.size(); i += 2) {
      gradient[5 * kHidden] += of_y[i];
      gradient[5 * kHidden + 1] += of_y[i + 1];
      for (int unit = 0; unit < kHidden; ++unit) {
        double const* const of = &parameters_[5 * unit];
        double* const out = &gradient[5 * unit];
        double const hidden = std::tanh(of[0] * z[i] + of[1] * z[i + 1] + of[2]);
        double const before = (of[3] * of_y[i] + of[4] * of_y[i + 1]) * (1 - hidden * hidden);
        out[0] += before * z[i];
        out[1] += before * z[i + 1];
        out[2] += before;
        out[3] += hidden * of_y[i];
        out[4] += hidden * of_y[i + 1];
      }
    }
  }

 private:
  Vector parameters_;
};

struct Loss {
  double value = 0;
  std::array<Vector, 4> gradients;  // by the points of each batch
  double entries = 0;               // of a row of a plan, on average
};

/// The energy distance from the batches X, X', Y and Y'.
Loss energy_distance(monge::Context const& context, std::array<Vector, 4> const& batches) {
  struct Term {
    int rows, columns;
    double factor;
  };
  constexpr std::array kTerms{Term{0, 2, 1}, Term{1, 2, 1},  Term{0, 3, 1},
                              Term{1, 3, 1}, Term{0, 1, -2}, Term{2, 3, -2}};
  auto const n = static_cast<std::int64_t>(batches[0].size() / 2);  // points of each
  std::vector<Vector> costs;
  std::vector<monge::RegularizedProblem> problems;
  for (Term const& term : kTerms) {
    Vector const &x = batches[term.rows], &y = batches[term.columns];
    Vector& cost = costs.emplace_back();
    for (std::size_t i = 0; i < x.size(); i += 2) {
      for (std::size_t j = 0; j < y.size(); j += 2)
        cost.push_back((std::pow(x[i] - y[j], 2) + std::pow(x[i + 1] - y[j + 1], 2)) / 2);
    }
    problems.push_back({.geometry = monge::CostMatrix{{cost.data(), n, n}}, .regularizer = {.quadratic = kWeight}});
  }
  std::vector<monge::RegularizedPlan> const plans =
      monge::solve_regularized_batch(context, problems, {.tolerance = kTolerance});

  Loss loss;
  loss.gradients.fill(Vector(2 * n));
  Vector row(n), column(n), from_y(2 * n), from_x(2 * n);
  for (std::size_t k = 0; k < plans.size(); ++k) {
    Term const& term = kTerms[k];
    Vector const &x = batches[term.rows], &y = batches[term.columns];
    loss.value += term.factor * plans[k].report().primal;
    loss.entries += static_cast<double>(plans[k].report().nonzeros) / static_cast<double>(n * std::ssize(plans));
    plans[k].marginals(row, column);
    plans[k].apply({y.data(), n, 2}, {from_y.data(), n, 2});
    plans[k].apply_transpose({x.data(), n, 2}, {from_x.data(), n, 2});
    for (std::int64_t e = 0; e < 2 * n; ++e) {
      loss.gradients[term.rows][e] += term.factor * (row[e / 2] * x[e] - from_y[e]);
      loss.gradients[term.columns][e] += term.factor * (column[e / 2] * y[e] - from_x[e]);
    }
  }
  return loss;
}

}  // namespace

int main(int count, char** arguments) {
  std::int64_t const batch = count > 1 ? std::atoll(arguments[1]) : 64;
  int const steps = count > 2 ? std::atoi(arguments[2]) : 300;
  std::string const folder = count > 3 ? arguments[3] : "";
  monge::Context const context =
      monge::cuda_unavailable_reason().empty() ? monge::Context::cuda() : monge::Context::cpu();

  std::mt19937 random(1);
  Generator generator(random);
  auto const noise = [&](std::int64_t size) { return descent::normal(2 * size, 1, random); };
  // The same points at the start and at the end.
  std::array const data{ring(kShown, random), ring(kShown, random)};
  std::array const latent{noise(kShown), noise(kShown)};
  auto const measured = [&] {
    return energy_distance(context, {data[0], data[1], generator(latent[0]), generator(latent[1])}).value;
  };

  double const first = measured();
  descent::Adam adam(generator.size(), kRate);
  Vector losses, snapshots;
  double entries = 0;
  for (int step = 0; step <= steps; ++step) {
    if (step * (kSnapshots - 1) / steps > (step - 1) * (kSnapshots - 1) / steps || step == 0) {
      Vector const samples = generator(latent[0]);
      snapshots.insert(snapshots.end(), samples.begin(), samples.end());
    }
    if (step == steps) break;
    std::array const z{noise(batch), noise(batch)};
    Loss const loss =
        energy_distance(context, {ring(batch, random), ring(batch, random), generator(z[0]), generator(z[1])});
    losses.push_back(loss.value);
    entries += loss.entries / steps;
    Vector gradient(generator.size());
    for (std::size_t k = 0; k < 2; ++k) generator.add_gradient(z[k], loss.gradients[2 + k], gradient);
    generator.step(descent::scaled(1 - static_cast<double>(step) / steps, adam.step(gradient)));
  }
  double const last = measured();
  std::printf("energy distance %.4f, after %d steps %.4f: %.4f of its start; %.1f entries a row\n", first, steps, last,
              last / first, entries);
  if (!folder.empty()) {
    npy::write(folder + "/data.npy", {kShown, 2}, data[0]);
    npy::write(folder + "/snapshots.npy", {kSnapshots, kShown, 2}, snapshots);
    npy::write(folder + "/losses.npy", {steps}, losses);
  }
}
