// Wrong calls say what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionCalls : public BackendTest {};

TEST_P(ProjectionCalls, BadCallsSayWhatIsWrong) {
  std::vector<float> in(64), out(64);
  auto const message = [&](ProjectionOptions const& options, BatchView logits, MutableBatchView to) -> std::string {
    try {
      project(context(), logits, to, options);
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
      return error.what();
    }
    return "no error";
  };
  BatchView const logits(in.data(), 4, 4, 4);
  MutableBatchView const to(out.data(), 4, 4, 4);
  auto const expect = [&](std::string const& field, std::string const& text) {
    EXPECT_EQ(text.rfind(field + ":", 0), 0u) << text;
  };
  expect("iterations", message({.iterations = 0}, logits, to));
  expect("temperature", message({.temperature = -1}, logits, to));
  expect("tolerance", message({.tolerance = -1}, logits, to));
  expect("epsilon", message({.epsilon = -1}, logits, to));
  expect("row_sum", message({.row_sum = 0}, logits, to));
  expect("epsilon_mode",
         message({.epsilon_mode = EpsilonMode::clamp, .epsilon = 1e-6, .log_domain = true}, logits, to));
  expect("out", message({}, logits, {in.data() + 16, 3, 4, 4}));
  expect("out", message({}, logits, {in.data(), 4, 4, 4}));
  expect("out", message({.dustbin = true}, logits, to));
  expect("logits", message({}, {in.data(), 1, 2000, 2000}, {out.data(), 1, 2000, 2000}));
  expect("logits", message({}, {in.data(), 4, 4, 4, 8}, to));
  std::vector<double> const uneven{1, 1, 1, 2};
  expect("column_marginal", message({.column_marginal = uneven}, logits, to));
  std::vector<double> const negative{1, 1, -1, 2};
  expect("row_marginal", message({.row_marginal = negative}, logits, to));
  expect("row_marginal", message({.row_marginal = std::vector<double>{1, 2}}, logits, to));
  expect("implicit_tolerance", message({.implicit_tolerance = 0}, logits, to));
  expect("dustbin_score", message({.dustbin = true, .dustbin_score = NAN}, logits, to));
  expect("temperature", message({.start = ProjectionStart::positive, .temperature = 2}, logits, to));
  auto const backward_message = [&](BatchView d_out, MutableBatchView d_logits) -> std::string {
    try {
      project_backward(context(), logits, d_out, d_logits, {});
    } catch (Error const& error) {
      return error.what();
    }
    return "no error";
  };
  std::vector<float> d(64);
  expect("d_logits", backward_message({d.data(), 4, 4, 4}, {in.data(), 4, 4, 4}));
  expect("d_logits", backward_message({d.data(), 4, 4, 4}, {d.data() + 60, 4, 4, 4}));
  expect("d_out", backward_message({d.data(), 3, 4, 4}, to));
  try {
    projection_preset("mhc");
    ADD_FAILURE();
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("mhc_paper, deepseek, megatron"), std::string::npos) << error.what();
  }
}

TEST_P(ProjectionCalls, MarginalsComeFromTheOptions) {
  auto const marginals = [&](int n, int m, ProjectionOptions const& options) {
    ProjectionMarginals const both = projection_marginals(context(), n, m, options);
    return std::pair(both.rows, both.columns);
  };
  using V = std::vector<float>;
  EXPECT_EQ(marginals(2, 2, {}), std::pair(V(2, 1), V(2, 1)));
  EXPECT_EQ(marginals(3, 6, {.row_sum = 4}), std::pair(V(3, 4), V(6, 2)));
  std::vector<double> const a{1, 0, 2};
  EXPECT_EQ(marginals(3, 2, {.row_marginal = a}), std::pair(V{1, 0, 2}, V(2, 1.5f)));
  EXPECT_EQ(marginals(3, 3, {.column_marginal = a}), std::pair(V(3, 1), V{1, 0, 2}));
  EXPECT_EQ(marginals(2, 3, {.dustbin = true}), std::pair(V{1, 1, 3}, V{1, 1, 1, 2}));
  EXPECT_EQ(marginals(1, 1, {.dustbin = true, .row_sum = 5}), std::pair(V(2, 5), V(2, 5)));
  EXPECT_THROW(marginals(3, 2, {.column_marginal = std::vector<double>{1, 1}}), Error);
}

MONGE_FOR_EACH_DEVICE(ProjectionCalls);

}  // namespace
}  // namespace monge::oracle
