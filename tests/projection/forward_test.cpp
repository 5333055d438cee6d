// project() against the float64 references.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionForward : public BackendTest {};

TEST_P(ProjectionForward, ForwardMatchesTheReferences) {
  for (Case const& test : cases()) {
    SCOPED_TRACE(test.name);
    Data const data(test);
    std::vector<float> out(static_cast<std::size_t>(data.n * data.m * test.batch), -7.0f);
    project(context(), data.logit_view(), {out.data(), test.batch, data.n, data.m}, data.options());
    double const allowed = entry_tolerance(test);
    double worst = 0;
    for (int t = 0; t < test.batch; ++t) {
      std::vector<double> const expected = data.reference()(data.matrix(t), test.options.dustbin_score);
      for (std::size_t e = 0; e < expected.size(); ++e) {
        double const actual = out[static_cast<std::size_t>(t) * expected.size() + e];
        double const quotient = std::abs(actual - expected[e]) / (allowed * expected[e] + 1e-9);
        worst = std::isnan(quotient) ? 1e30 : std::max(worst, quotient);
      }
    }
    EXPECT_LE(worst, 1);
    if (std::getenv("MONGE_SHOW_ERRORS") != nullptr)
      std::printf("%-40s forward %.3f of %.1e\n", test.name.c_str(), worst, allowed);
  }
}

TEST_P(ProjectionForward, MhcLogitsAreRightToAMillionth) {
  for (std::string_view const preset : projection_preset_names()) {
    Case const test{std::string(preset), projection_preset(preset), 4, 4, 4000};
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

MONGE_FOR_EACH_DEVICE(ProjectionForward);

}  // namespace
}  // namespace monge::oracle
