// project() against the float64 references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionForward : public BackendTest {};

/// The largest error of an entry of matrix t, over what is allowed: a fraction of the entry, and a little in any case.
double worst_error(Data const& data, int t, std::vector<float> const& out, double fraction, double little) {
  std::vector<double> const expected = data.reference()(data.matrix(t), data.test.options.dustbin_score);
  double worst = 0;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    double const actual = out[static_cast<std::size_t>(t) * expected.size() + e];
    double const quotient = std::abs(actual - expected[e]) / (fraction * expected[e] + little);
    worst = std::isnan(quotient) ? 1e30 : std::max(worst, quotient);
  }
  return worst;
}

TEST_P(ProjectionForward, ForwardMatchesTheReferences) {
  for (ProjectionCase const& test : cases()) {
    SCOPED_TRACE(test.name);
    Data const data(test);
    std::vector<float> out(static_cast<std::size_t>(data.n * data.m * test.batch), -7.0f);
    project(context(), data.logit_view(), {out.data(), test.batch, data.n, data.m}, data.options());
    double const allowed = entry_tolerance(test);
    double worst = 0;
    for (int t = 0; t < test.batch; ++t) worst = std::max(worst, worst_error(data, t, out, allowed, 1e-9));
    EXPECT_LE(worst, 1);
    if (std::getenv("MONGE_SHOW_ERRORS") != nullptr)
      std::printf("%-40s forward %.3f of %.1e\n", test.name.c_str(), worst, allowed);
  }
}

TEST_P(ProjectionForward, MhcLogitsAreRightToAMillionth) {
  for (auto const& [value, preset] : kNames<ProjectionPreset>) {
    ProjectionCase const test{std::string(preset), projection_preset(preset), 4, 4, 4000};
    Data const data(test);
    std::size_t const cells = static_cast<std::size_t>(data.n * data.m);
    std::vector<float> out(cells * 4000);
    project(context(), data.logit_view(), {out.data(), test.batch, data.n, data.m}, test.options);
    double error = 0, norm = 0;
    for (int t = 0; t < test.batch; ++t) {
      std::vector<double> const expected = data.reference()(data.matrix(t), test.options.dustbin_score);
      for (std::size_t e = 0; e < cells; ++e) {
        error = std::max(error, std::abs(out[static_cast<std::size_t>(t) * cells + e] - expected[e]));
        norm = std::max(norm, expected[e]);
      }
    }
    EXPECT_LE(error, 1e-6 * norm) << test.name;
  }
}

/// Sizes as in the matching of two sets of keypoints. The float64 reference is slow, so there are two iterations.
TEST_P(ProjectionForward, SizesUpToTheLargest) {
  auto const large = [](ProjectionPreset preset, int rows, int columns, int batch) {
    return ProjectionCase{std::string(name(preset)), with(preset, 2, [](auto&) {}), rows, columns, batch, 3};
  };
  using enum ProjectionPreset;
  for (ProjectionCase const& test :
       {large(superglue, 2048, 2048, 1), large(superglue, 300, 1024, 2), large(deepseek, 1025, 260, 2),
        large(mhc_paper, 513, 514, 2), large(megatron, 2049, 1, 3), large(blog, 1, 2049, 3)}) {
    SCOPED_TRACE(test.name + " " + std::to_string(test.rows));
    Data const data(test);
    std::vector<float> out(static_cast<std::size_t>(data.n * data.m * test.batch), NAN);
    project(context(), data.logit_view(), {out.data(), test.batch, data.n, data.m}, test.options);
    for (int t = 0; t < test.batch; ++t) EXPECT_LE(worst_error(data, t, out, entry_tolerance(test), 1e-9), 1);
  }
}

/// Matrices of two blocks that exchange little mass, e^-c a row and iteration, until they are in balance. Code that
/// stops early must not stop on these. The tolerance is in units of 2^-24. A half-step adds the rounding of sums of n
/// terms, which is four standard deviations of sqrt(n) / 3 (uniform errors, growing partial sums), and that of a
/// reciprocal. No half-step amplifies what the ones before it added.
TEST_P(ProjectionForward, WhatMovesSlowlyIsNotTakenForSettled) {
  for (int const size : {16, 30, 32}) {
    for (int const iterations : {20, 50}) {
      for (ProjectionOrder const order : {ProjectionOrder::rows_first, ProjectionOrder::columns_first}) {
        ProjectionCase test{"slow", projection_preset(ProjectionPreset::mhc_paper), size, size, 21};
        test.options.iterations = iterations;
        test.options.order = order;
        Data data(test);
        double largest = 0;
        std::size_t const cells = static_cast<std::size_t>(size * size);
        for (int t = 0; t < test.batch; ++t) {
          float const coupling = 8 + 0.5f * static_cast<float>(t);
          for (int i = 0; i < size; ++i) {
            for (int j = 0; j < size; ++j) {
              bool const lower = i < size / 2, left = j < size / 2;
              float& x = data.logits[static_cast<std::size_t>(t) * cells + static_cast<std::size_t>(i * size + j)];
              if (lower != left) x -= lower ? coupling : coupling + 3;
              largest = std::max(largest, std::abs(static_cast<double>(x)));
            }
          }
        }
        std::vector<float> out(data.logits.size(), -7.0f);
        project(context(), data.logit_view(), {out.data(), test.batch, size, size}, test.options);
        double const rounding = 2 * iterations * (4 * std::sqrt(size) / 3 + 2) + 4 * largest;
        double const allowed = 0x1p-24 * rounding + 0x1p-20;
        for (int t = 0; t < test.batch; ++t) {
          double const worst = worst_error(data, t, out, allowed, 0);
          EXPECT_LE(worst, 1) << size << " " << iterations << " " << name(order) << " " << t;
          if (std::getenv("MONGE_SHOW_ERRORS") != nullptr)
            std::printf("slow %d %d %d: %.3f of %.1e\n", size, iterations, t, worst, allowed);
        }
      }
    }
  }
}

MONGE_FOR_EACH_DEVICE(ProjectionForward);

}  // namespace
}  // namespace monge::oracle
