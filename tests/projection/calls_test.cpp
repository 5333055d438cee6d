// Wrong calls say what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionCalls : public BackendTest {};

TEST_P(ProjectionCalls, BadOptionsSayWhatIsWrong) {
  std::vector<float> in(64), out(64);
  auto const expect = [&](std::string const& text, ProjectionOptions const& options) {
    expect_refused(text, [&] { project(context(), {in.data(), 4, 4, 4}, {out.data(), 4, 4, 4}, options); });
    expect_refused(text, [&] { projection_marginals(context(), 4, 4, options); });
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto const clamp = EpsilonMode::clamp;
  auto const positive = ProjectionStart::positive;
  expect("iterations: is 0; must be >= 1", {.iterations = 0});
  expect("iterations: is -3; must be >= 1", {.iterations = -3});
  expect("temperature: is -1; must be finite and > 0", {.temperature = -1});
  expect("temperature: is 0; must be finite and > 0", {.temperature = 0});
  expect("temperature: is inf; must be finite and > 0", {.temperature = kInfinity});
  expect("temperature: is nan; must be finite and > 0", {.temperature = NAN});
  expect("temperature: is 2; must be 1 with start positive", {.start = positive, .temperature = 2});
  expect("tolerance: is -1; must be finite and >= 0", {.tolerance = -1});
  expect("tolerance: is nan; must be finite and >= 0", {.tolerance = NAN});
  expect("epsilon: is -1; must be finite and >= 0", {.epsilon_mode = clamp, .epsilon = -1});
  expect("epsilon: is nan; must be finite and >= 0", {.epsilon_mode = clamp, .epsilon = NAN});
  expect("epsilon: is 1e-06 with epsilon_mode none; must be 0, or have a place", {.epsilon = 1e-6});
  expect("epsilon_mode: is clamp; must be none in the log domain",
         {.epsilon_mode = clamp, .epsilon = 1e-6, .log_domain = true});
  expect("epsilon: is 1e-06 with start softmax; must be 0 in the log domain",
         {.start = ProjectionStart::softmax, .epsilon = 1e-6, .log_domain = true});
  expect("dustbin_score: is nan; must be finite", {.dustbin = true, .dustbin_score = NAN});
  expect("dustbin_score: is -1; must be >= 0 with start positive",
         {.start = positive, .dustbin = true, .dustbin_score = -1});
  expect("implicit_tolerance: is 0; must be finite and > 0", {.implicit_tolerance = 0});
  expect("row_sum: is 0; must be finite and > 0", {.row_sum = 0});
  expect("row_sum: is nan; must be finite and > 0", {.row_sum = NAN});
  expect("order: is 2; must be rows_first or columns_first", {.order = ProjectionOrder(2)});
  expect("start: is 17; must be exp, exp_shifted, softmax or positive", {.start = ProjectionStart(17)});
  expect("epsilon_mode: is -1; must be none, denominator, scaling, matrix or clamp", {.epsilon_mode = EpsilonMode(-1)});
  expect("gradient: is 7; must be unrolled or implicit", {.gradient = ProjectionGradient(7)});
  std::vector<double> const uneven{1, 1, 1, 2}, negative{1, 1, -1, 2}, nan{1, 1, NAN, 2}, none{0, 0, 0, 0}, two{1, 2};
  expect("column_marginal: the total is 5; must equal that of the rows, 4,", {.column_marginal = uneven});
  expect("row_marginal: entry 2 is -1; must be finite and >= 0", {.row_marginal = negative});
  expect("column_marginal: entry 2 is nan; must be finite and >= 0", {.column_marginal = nan});
  expect("row_marginal: the total is 0; must be positive", {.row_marginal = none});
  expect("row_marginal: has 2 entries; must have 4", {.row_marginal = two});
  expect("row_marginal: has 4 entries; must have 5", {.dustbin = true, .row_marginal = uneven});
  expect_refused("preset: is 'mhc'; must be one of mhc_paper, deepseek, megatron, blog, gumbel_sinkhorn, superglue",
                 [] { projection_preset("mhc"); });
}

TEST_P(ProjectionCalls, BadArraysSayWhatIsWrong) {
  std::vector<float> in(128), out(64);
  std::vector<std::uint16_t> half(64);
  BatchView const logits(in.data(), 4, 4, 4);
  MutableBatchView const to(out.data(), 4, 4, 4);
  auto const expect = [&](std::string const& text, BatchView from, MutableBatchView into,
                          ProjectionOptions const& options = {}) {
    expect_refused(text, [&] { project(context(), from, into, options); });
  };
  expect("out: is 3 x 4 x 4; must be 4 x 4 x 4", logits, {out.data(), 3, 4, 4});
  expect("out: overlaps logits; must be other memory", logits, {in.data(), 4, 4, 4});
  expect("out: overlaps logits; must be other memory", logits, {in.data() + 63, 4, 4, 4});
  EXPECT_NO_THROW(project(context(), logits, {in.data() + 64, 4, 4, 4}, {})) << "right behind them is fine";
  expect("out: is 4 x 4 x 4; must be 4 x 5 x 5", logits, to, {.dustbin = true});
  expect("logits: is float64; must be float16, bfloat16 or float32", {in.data(), DataType::float64, 4, 4, 4}, to);
  expect("out: is float64; must be float16, bfloat16 or float32", logits, {out.data(), DataType::float64, 4, 4, 4});
  expect("out: is bfloat16; must be float32 or the type of the logits, float32", logits,
         {half.data(), DataType::bfloat16, 4, 4, 4});
  expect("out: is float16; must be float32 or the type of the logits, bfloat16",
         {in.data(), DataType::bfloat16, 4, 4, 4}, {half.data(), DataType::float16, 4, 4, 4});
  expect("out: is a null pointer; must point to 4 matrices", logits, {static_cast<float*>(nullptr), 4, 4, 4});
  expect("logits: is 3000 x 3000; must be at most 2049 x 2049", {in.data(), 1, 3000, 3000},
         {out.data(), 1, 3000, 3000});
  expect("logits: is 2049 x 3 and a dustbin; must be at most 2049 x 2049", {in.data(), 1, 2049, 3},
         {out.data(), 1, 2050, 4}, {.dustbin = true});
  expect("logits: is 0 x 4; must be at least 1 x 1", {in.data(), 4, 0, 4}, {out.data(), 4, 0, 4});
  expect("logits: has -1 matrices; must be >= 0", {in.data(), -1, 4, 4}, {out.data(), -1, 4, 4});
  expect("logits: has batch stride 8; must be at least 16", {in.data(), 4, 4, 4, 8}, to);
  expect("logits: has row stride 3; must be at least its 4 columns", {in.data(), 4, 4, 4, 16, 3}, to);
  expect("logits: is a null pointer; must point to 4 matrices", {static_cast<float const*>(nullptr), 4, 4, 4}, to);
}

TEST_P(ProjectionCalls, BadGradientArraysSayWhatIsWrong) {
  std::vector<float> in(64), d(100), score(4);
  BatchView const logits(in.data(), 4, 4, 4);
  std::vector<float> out(64);
  MutableBatchView const to(out.data(), 4, 4, 4);
  auto const expect = [&](std::string const& text, BatchView d_out, MutableBatchView d_logits,
                          ProjectionOptions const& options = {}, MutableVectorView d_score = {}) {
    expect_refused(text, [&] { project_backward(context(), logits, d_out, d_logits, options, d_score); });
  };
  BatchView const d_out(d.data(), 4, 4, 4), d_wide(d.data(), 4, 5, 5);
  ProjectionOptions const dustbin{.dustbin = true};
  expect("d_logits: overlaps logits; must be other memory", d_out, {in.data(), 4, 4, 4});
  expect("d_logits: overlaps d_out; must be other memory", d_out, {d.data() + 60, 4, 4, 4});
  expect("d_out: is 3 x 4 x 4; must be 4 x 4 x 4", {d.data(), 3, 4, 4}, to);
  expect("d_logits: is 4 x 4 x 3; must be 4 x 4 x 4", d_out, {out.data(), 4, 4, 3});
  expect("d_logits: is 4 x 5 x 5; must be 4 x 4 x 4", d_wide, {out.data(), 4, 5, 5}, dustbin);
  expect("d_dustbin_score: is given; must be empty without a dustbin", d_out, to, {}, score);
  expect("d_dustbin_score: overlaps d_logits; must be other memory", d_wide, to, dustbin, {out.data() + 60, 4});
  expect("iterations: is -1; must be >= 1", d_out, to, {.iterations = -1});
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
