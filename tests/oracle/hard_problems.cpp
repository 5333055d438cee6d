#include "oracle/hard_problems.hpp"

#include <cmath>
#include <numbers>
#include <numeric>
#include <sstream>

namespace monge::oracle {
namespace {

using Cloud = std::vector<double>;

/// Both clouds of a family, n and m points of d coordinates.
using Family = std::pair<Cloud, Cloud> (*)(std::int64_t n, std::int64_t m, std::int64_t d, Random& random);

/// Bailey's polar method.
double student_t(double degrees, Random& random) {
  double const radius = std::sqrt(degrees * (std::pow(1 - random.uniform(), -2 / degrees) - 1));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

template <class Point>
Cloud cloud(std::int64_t size, std::int64_t d, Point&& coordinates) {
  Cloud all;
  for (std::int64_t i = 0; i < size; ++i) {
    auto const coordinate = coordinates();
    for (std::int64_t k = 0; k < d; ++k) all.push_back(coordinate());
  }
  return all;
}

std::pair<Cloud, Cloud> gauss(std::int64_t n, std::int64_t m, std::int64_t d, Random& random) {
  return {gaussian_points(n, d, random), gaussian_points(m, d, random, 0.3)};
}

std::pair<Cloud, Cloud> clusters(std::int64_t n, std::int64_t m, std::int64_t d, Random& random) {
  auto const point = [&] {
    double const centre = 10 * std::floor(random.uniform(0, 4));
    return [&random, centre] { return centre + 0.1 * random.normal(); };
  };
  return {cloud(n, d, point), cloud(m, d, point)};
}

std::pair<Cloud, Cloud> lattice(std::int64_t n, std::int64_t m, std::int64_t d, Random& random) {
  auto const point = [&] { return [&random] { return std::floor(random.uniform(0, 5)); }; };
  return {cloud(n, d, point), cloud(m, d, point)};
}

std::pair<Cloud, Cloud> heavy(std::int64_t n, std::int64_t m, std::int64_t d, Random& random) {
  auto const point = [&] { return [&random] { return student_t(1.2, random); }; };
  return {cloud(n, d, point), cloud(m, d, point)};
}

std::pair<Cloud, Cloud> duplicates(std::int64_t n, std::int64_t m, std::int64_t d, Random& random) {
  Cloud const once = gaussian_points(n / 10, d, random);
  Cloud x;
  for (std::int64_t i = 0; i < n; ++i) x.insert(x.end(), &once[i / 10 * d], &once[i / 10 * d] + d);
  return {x, gaussian_points(m, d, random)};
}

std::pair<Cloud, Cloud> far(std::int64_t n, std::int64_t m, std::int64_t d, Random& random) {
  return {gaussian_points(n, d, random, 0, 1e-3), gaussian_points(m, d, random, 1e4, 1e-3)};
}

/// The mean squared distance from the mean.
double spread(Cloud const& points, std::int64_t d) {
  double sum = 0;
  std::int64_t const size = static_cast<std::int64_t>(points.size()) / d;
  for (std::int64_t k = 0; k < d; ++k) {
    double mean = 0;
    for (std::int64_t i = 0; i < size; ++i) mean += points[i * d + k] / static_cast<double>(size);
    for (std::int64_t i = 0; i < size; ++i) sum += std::pow(points[i * d + k] - mean, 2) / static_cast<double>(size);
  }
  return sum;
}

}  // namespace

std::vector<HardProblem> hard_problems(std::uint64_t seed, std::int64_t n) {
  struct Named {
    char const* name;
    Family family;
  };
  static constexpr Named kFamilies[] = {{"gauss", gauss}, {"clusters", clusters},     {"lattice", lattice},
                                        {"heavy", heavy}, {"duplicates", duplicates}, {"far", far}};
  std::int64_t const m = n + 7;
  Random random(seed);
  std::vector<HardProblem> all;
  for (auto const& [name, family] : kFamilies) {
    for (std::int64_t const d : {1, 2, 5, 30}) {
      auto const [x, y] = family(n, m, d, random);
      std::vector<double> a(n);
      for (double& weight : a) weight = std::pow(random.uniform(), 4);
      double const total = std::accumulate(a.begin(), a.end(), 0.0);
      for (double& weight : a) weight /= total;
      std::vector<double> const b(m, 1 / static_cast<double>(m));
      for (double const share : {1.0, 0.1, 0.01, 0.001}) {
        std::ostringstream label;
        label << name << " d=" << d << " eps=" << share;
        all.push_back({label.str(), {Stored(x, n, d), Stored(y, m, d), a, b}, share * (spread(x, d) + spread(y, d))});
      }
    }
  }
  return all;
}

}  // namespace monge::oracle
