// project() and project_backward() against the float64 references, over a covering selection of the options.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cpu/projection_elements.hpp"
#include "oracle/backend_test.hpp"
#include "projection/reference.hpp"

namespace monge::oracle {
namespace {

struct Case {
  std::string name;
  ProjectionOptions options;
  int rows, columns;
  int batch = 37;
  double spread = 1;  // Standard deviation of the logits.
  ElementType type = ElementType::float32;
  bool strided = false;
  bool marginals = false;
};

ProjectionOptions with(ProjectionPreset preset, int iterations, auto&& change) {
  ProjectionOptions options = projection_preset(preset);
  options.iterations = iterations;
  change(options);
  return options;
}
ProjectionOptions with(ProjectionPreset preset, int iterations) {
  return with(preset, iterations, [](ProjectionOptions&) {});
}

std::vector<Case> cases() {
  using P = ProjectionPreset;
  auto const rows_first = [](ProjectionOptions& o) { o.order = ProjectionOrder::rows_first; };
  auto const columns_first = [](ProjectionOptions& o) { o.order = ProjectionOrder::columns_first; };
  std::vector<Case> all;
  for (P const preset : {P::mhc_paper, P::deepseek, P::megatron, P::blog, P::gumbel_sinkhorn}) {
    std::string const label(name(preset));
    all.push_back({label + " 4x4", with(preset, 20), 4, 4, 70});
    all.push_back({label + " 4x4 wide", with(preset, 20), 4, 4, 70, 4});
    all.push_back({label + " 4x4 one iteration", with(preset, 1), 4, 4});
    all.push_back({label + " 4x4 in a wider row", with(preset, 7), 4, 4, 70, 1, ElementType::float32, true});
    all.push_back({label + " 8x8", with(preset, 20), 8, 8});
    all.push_back({label + " 3x5", with(preset, 9), 3, 5});
    all.push_back({label + " 16x16", with(preset, 5), 16, 16, 21});
    all.push_back({label + " columns first 2x2", with(preset, 6, columns_first), 2, 2});
    all.push_back({label + " rows first 7x6 marginals", with(preset, 6, rows_first), 7, 6, 19, 1, ElementType::float32,
                   false, true});
    all.push_back({label + " 64x64", with(preset, 5), 64, 64, 3});
    all.push_back({label + " 33x70", with(preset, 4), 33, 70, 3});
  }
  all.push_back({"superglue 5x9", with(P::superglue, 30), 5, 9});
  all.push_back({"superglue 70x40", with(P::superglue, 10), 70, 40, 2});
  all.push_back({"superglue linear 15x15", with(P::superglue, 12, [](auto& o) { o.log_domain = false; }), 15, 15});
  for (ElementType const type : {ElementType::bfloat16, ElementType::float16}) {
    all.push_back({std::string(name(type)) + " 4x4", with(P::mhc_paper, 20), 4, 4, 70, 1, type});
    all.push_back({std::string(name(type)) + " 5x3", with(P::megatron, 20), 5, 3, 40, 1, type});
    all.push_back({std::string(name(type)) + " 16x16", with(P::deepseek, 20), 16, 16, 9, 1, type});
  }
  auto const matrix_eps = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::matrix;
    o.epsilon = 1e-2;
  };
  auto const big_denominator = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::denominator;
    o.epsilon = 0.1;
  };
  auto const big_scaling = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::scaling;
    o.epsilon = 0.1;
  };
  auto const clamping = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::clamp;
    o.epsilon = 0.7;
  };
  for (int const size : {4, 6, 8, 80}) {
    std::string const shape = " " + std::to_string(size);
    int const batch = size == 80 ? 3 : 33;
    all.push_back({"matrix" + shape, with(P::mhc_paper, 5, matrix_eps), size, size, batch});
    all.push_back({"denominator" + shape, with(P::mhc_paper, 5, big_denominator), size, size, batch});
    all.push_back({"scaling columns" + shape, with(P::mhc_paper, 5, big_scaling), size, size, batch});
    all.push_back({"clamp" + shape, with(P::mhc_paper, 5, clamping), size, size, batch});
    all.push_back({"megatron clamping" + shape, with(P::megatron, 5, clamping), size, size, batch, 2});
    all.push_back({"softmax columns first" + shape, with(P::deepseek, 5, columns_first), size, size, batch});
    all.push_back(
        {"temperature" + shape, with(P::gumbel_sinkhorn, 5, [](auto& o) { o.temperature = 0.4; }), size, size, batch});
    all.push_back({"positive" + shape, with(P::mhc_paper, 5, [](auto& o) { o.start = ProjectionStart::positive; }),
                   size, size, batch});
    all.push_back({"row sum" + shape, with(P::blog, 5, [](auto& o) { o.row_sum = 2.5; }), size, size, batch});
    all.push_back({"log softmax" + shape,
                   with(P::gumbel_sinkhorn, 5, [](auto& o) { o.start = ProjectionStart::softmax; }), size, size,
                   batch});
  }
  return all;
}

/// Logits, marginals and their bits; the reference reads what the library reads.
struct Data {
  Case const& test;
  int n, m;
  std::int64_t row_stride, batch_stride;
  std::vector<float> logits, gradient, a, b;
  std::vector<std::uint16_t> logit_bits, gradient_bits;

  explicit Data(Case const& given)
      : test(given), n(given.rows + given.options.dustbin), m(given.columns + given.options.dustbin) {
    std::mt19937 random(static_cast<unsigned>(given.rows * 1000 + given.columns));
    std::normal_distribution<float> normal;
    row_stride = given.strided ? given.columns + 4 : given.columns;
    batch_stride = row_stride * given.rows + (given.strided ? 8 : 0);
    logits.resize(static_cast<std::size_t>(batch_stride * given.batch));
    gradient.resize(static_cast<std::size_t>(n * m * given.batch));
    for (float& x : logits) {
      x = normal(random) * static_cast<float>(given.spread);
      if (given.options.start == ProjectionStart::positive) x = std::exp(x);
    }
    for (float& x : gradient) x = normal(random);
    if (given.type != ElementType::float32) {
      logit_bits.resize(logits.size());
      gradient_bits.resize(gradient.size());
      round(logits, logit_bits);
      round(gradient, gradient_bits);
    }
    if (given.marginals) {
      double total_a = 0, total_b = 0;
      for (int i = 0; i < n; ++i) total_a += a.emplace_back(static_cast<float>(0.5 + i % 3));
      for (int j = 0; j < m; ++j) total_b += b.emplace_back(static_cast<float>(1 + j % 2));
      b.back() += static_cast<float>(total_a - total_b);
    }
  }
  void round(std::vector<float>& values, std::vector<std::uint16_t>& bits) const {
    for (std::size_t k = 0; k < values.size(); ++k) {
      cpu::store_element(bits.data(), test.type, static_cast<std::int64_t>(k), values[k]);
      values[k] = cpu::load_element(bits.data(), test.type, static_cast<std::int64_t>(k));
    }
  }
  BatchView logit_view() const {
    void const* const data =
        test.type == ElementType::float32 ? static_cast<void const*>(logits.data()) : logit_bits.data();
    return {data, test.type, test.batch, test.rows, test.columns, batch_stride, row_stride};
  }
  BatchView gradient_view() const {
    void const* const data =
        test.type == ElementType::float32 ? static_cast<void const*>(gradient.data()) : gradient_bits.data();
    return {data, test.type, test.batch, n, m};
  }
  ProjectionOptions options() const {
    ProjectionOptions options = test.options;
    if (test.marginals) {
      options.row_marginal = a;
      options.column_marginal = b;
    }
    return options;
  }
  std::vector<double> matrix(int t) const {
    std::vector<double> x;
    for (int i = 0; i < test.rows; ++i)
      for (int j = 0; j < test.columns; ++j)
        x.push_back(logits[static_cast<std::size_t>(t * batch_stride + i * row_stride + j)]);
    return x;
  }
  ReferenceProjection reference() const {
    return {test.options, test.rows, test.columns, {a.begin(), a.end()}, {b.begin(), b.end()}};
  }
};

/// Entries of K are off by their exponent's rounding, sums by their length; half-steps do not amplify either.
double entry_tolerance(Case const& test) {
  double const largest_exponent = 4 * test.spread / test.options.temperature;
  return 6e-8 * (16 + 4 * largest_exponent + 2 * std::sqrt(test.rows + test.columns));
}

class ProjectionTest : public BackendTest {};

TEST_P(ProjectionTest, ForwardMatchesTheReferences) {
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

TEST_P(ProjectionTest, MhcLogitsAreRightToAMillionth) {
  for (ProjectionPreset const preset :
       {ProjectionPreset::mhc_paper, ProjectionPreset::deepseek, ProjectionPreset::megatron, ProjectionPreset::blog}) {
    Case const test{std::string(name(preset)), projection_preset(preset), 4, 4, 4000};
    Data const data(test);
    std::vector<float> out(16 * 4000);
    project(context(), data.logit_view(), {out.data(), test.batch, 4, 4}, test.options);
    double error = 0, norm = 0;
    for (int t = 0; t < test.batch; ++t) {
      std::vector<double> const expected = data.reference()(data.matrix(t), 0);
      for (std::size_t e = 0; e < 16; ++e) {
        error = std::max(error, std::abs(out[static_cast<std::size_t>(t) * 16 + e] - expected[e]));
        norm = std::max(norm, expected[e]);
      }
    }
    EXPECT_LE(error, 1e-6 * norm) << test.name;
  }
}

TEST_P(ProjectionTest, GradientMatchesFiniteDifferences) {
  for (Case test : cases()) {
    SCOPED_TRACE(test.name);
    test.batch = std::min(test.batch, test.rows > 8 ? 1 : 5);
    Data const data(test);
    std::vector<float> d_logits(static_cast<std::size_t>(test.rows * test.columns * test.batch), -7.0f);
    std::vector<float> d_score(static_cast<std::size_t>(test.batch), -7.0f);
    MutableVectorView const score_view = test.options.dustbin ? MutableVectorView(d_score) : MutableVectorView();
    project_backward(context(), data.logit_view(), data.gradient_view(),
                     {d_logits.data(), test.batch, test.rows, test.columns}, data.options(), score_view);
    ReferenceProjection const reference = data.reference();
    double const h = 1e-5;
    for (int t = 0; t < test.batch; ++t) {
      std::vector<double> x = data.matrix(t);
      double const score = test.options.dustbin_score;
      std::size_t const size = static_cast<std::size_t>(data.n * data.m);
      auto const slope = [&](std::vector<double> const& up, std::vector<double> const& down, double step) {
        double sum = 0;
        for (std::size_t e = 0; e < size; ++e)
          sum += data.gradient[static_cast<std::size_t>(t) * size + e] * (up[e] - down[e]);
        return sum / step;
      };
      std::vector<double> expected;
      std::vector<int> where;
      int const every = test.rows > 20 ? 97 : 1;  // Some entries of the large ones.
      for (int e = 0; e < test.rows * test.columns; e += every) {
        double const kept = x[static_cast<std::size_t>(e)];
        double const step = test.options.start == ProjectionStart::positive ? h * kept : h;
        x[static_cast<std::size_t>(e)] = kept + step;
        std::vector<double> const up = reference(x, score);
        x[static_cast<std::size_t>(e)] = kept - step;
        std::vector<double> const down = reference(x, score);
        x[static_cast<std::size_t>(e)] = kept;
        expected.push_back(slope(up, down, 2 * step));
        where.push_back(e);
      }
      double largest = 0;
      for (double const g : expected) largest = std::max(largest, std::abs(g));
      for (std::size_t k = 0; k < expected.size(); ++k) {
        double const actual = d_logits[static_cast<std::size_t>(t * test.rows * test.columns + where[k])];
        EXPECT_NEAR(actual, expected[k], 2e-5 * largest + 1e-8) << "matrix " << t << " entry " << where[k];
        if (!(std::abs(actual - expected[k]) <= 2e-5 * largest + 1e-8)) break;
      }
      if (test.options.dustbin) {
        double const d = slope(reference(x, score + h), reference(x, score - h), 2 * h);
        EXPECT_NEAR(d_score[static_cast<std::size_t>(t)], d, 3e-5 * std::abs(d) + 2e-5 * largest);
      }
    }
  }
}

TEST_P(ProjectionTest, ToleranceStopsEachMatrixByItself) {
  for (ProjectionPreset const preset : {ProjectionPreset::mhc_paper, ProjectionPreset::blog, ProjectionPreset::deepseek,
                                        ProjectionPreset::gumbel_sinkhorn}) {
    for (int const size : {4, 5, 16, 70}) {
      Case test{std::string(name(preset)), projection_preset(preset), size, size, size == 70 ? 3 : 40, 1.5};
      test.options.iterations = 30;
      test.options.tolerance = 3e-3;
      Data const data(test);
      std::size_t const cells = static_cast<std::size_t>(size * size);
      std::vector<float> out(cells * static_cast<std::size_t>(test.batch)), d_logits(out.size());
      project(context(), data.logit_view(), {out.data(), test.batch, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), test.batch, size, size},
                       test.options);
      int least = 1000, most = 0;
      for (int t = 0; t < test.batch; ++t) {
        ReferenceProjection reference = data.reference();
        int steps = 0;
        reference(data.matrix(t), 0, &steps);
        least = std::min(least, steps);
        most = std::max(most, steps);
        reference.options.tolerance = 0;
        reference.options.iterations = steps;
        std::vector<double> const expected = reference(data.matrix(t), 0);
        double error = 0;
        for (std::size_t e = 0; e < cells; ++e)
          error = std::max(error, std::abs(out[static_cast<std::size_t>(t) * cells + e] - expected[e]));
        EXPECT_LE(error, 3e-6) << test.name << " " << size << " matrix " << t << " of " << steps << " steps";
        if (size > 5 || t > 5) continue;
        // The gradient is that of the steps that were done.
        ProjectionOptions fixed = test.options;
        fixed.tolerance = 0;
        fixed.iterations = steps;
        std::vector<float> same(cells);
        project_backward(context(), BatchView(data.logits.data() + t * data.batch_stride, 1, size, size),
                         BatchView(data.gradient.data() + static_cast<std::size_t>(t) * cells, 1, size, size),
                         {same.data(), 1, size, size}, fixed);
        for (std::size_t e = 0; e < cells; ++e)
          EXPECT_NEAR(d_logits[static_cast<std::size_t>(t) * cells + e], same[e], 1e-5) << test.name << " " << size;
      }
      EXPECT_LT(least, most) << "the tolerance is meant to stop matrices at different steps";
    }
  }
}

TEST_P(ProjectionTest, ImplicitGradientIsThatOfTheLimit) {
  for (ProjectionOrder const order : {ProjectionOrder::rows_first, ProjectionOrder::columns_first}) {
    for (int const size : {3, 4, 12}) {
      for (bool const log_domain : {false, true}) {
        Case test{"implicit", {}, size, size, 9, 0.7};
        test.options.order = order;
        test.options.log_domain = log_domain;
        test.options.iterations = 40;
        test.options.gradient = ProjectionGradient::implicit;
        Data const data(test);
        std::size_t const cells = static_cast<std::size_t>(size * size * test.batch);
        std::vector<float> implicit(cells), unrolled(cells), early(cells), early_unrolled(cells);
        auto const run = [&](std::vector<float>& into) {
          project_backward(context(), data.logit_view(), data.gradient_view(), {into.data(), test.batch, size, size},
                           test.options);
        };
        run(implicit);
        test.options.iterations = 1;  // Not converged: unrolled after all.
        run(early);
        test.options.gradient = ProjectionGradient::unrolled;
        run(early_unrolled);
        test.options.iterations = 400;
        run(unrolled);
        for (std::size_t e = 0; e < cells; ++e) {
          EXPECT_NEAR(implicit[e], unrolled[e], 2e-5) << size;
          EXPECT_NEAR(early[e], early_unrolled[e], 1e-6) << size;
        }
      }
    }
  }
}

TEST_P(ProjectionTest, HardInputsStayInTheirMatrix) {
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (ProjectionPreset const preset :
       {ProjectionPreset::mhc_paper, ProjectionPreset::deepseek, ProjectionPreset::megatron, ProjectionPreset::blog,
        ProjectionPreset::gumbel_sinkhorn}) {
    for (int const size : {4, 5, 8, 16, 66}) {
      std::size_t const cells = static_cast<std::size_t>(size * size);
      Case const test{std::string(name(preset)), projection_preset(preset), size, size, 9};
      Data data(test);
      auto const at = [&](int t, int i, int j) -> float& {
        return data.logits[static_cast<std::size_t>(t) * cells + i * size + j];
      };
      std::vector<float> clean(cells * 9), out(cells * 9), d_clean(cells * 9), d_out(cells * 9);
      project(context(), data.logit_view(), {clean.data(), 9, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_clean.data(), 9, size, size},
                       test.options);
      at(1, 0, 1) = nan;
      for (int j = 0; j < size; ++j) at(3, 1, j) = -inf;
      for (std::size_t e = 0; e < cells; ++e) data.logits[5 * cells + e] += 500;  // exp alone overflows
      for (std::size_t e = 0; e < cells; ++e) data.logits[7 * cells + e] -= 30;
      project(context(), data.logit_view(), {out.data(), 9, size, size}, test.options);
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_out.data(), 9, size, size}, test.options);
      for (int const t : {0, 2, 4, 6, 8}) {
        EXPECT_EQ(std::memcmp(&clean[static_cast<std::size_t>(t) * cells], &out[static_cast<std::size_t>(t) * cells],
                              4 * cells),
                  0)
            << test.name << " " << size;
        EXPECT_EQ(std::memcmp(&d_clean[static_cast<std::size_t>(t) * cells],
                              &d_out[static_cast<std::size_t>(t) * cells], 4 * cells),
                  0)
            << test.name << " " << size;
      }
      EXPECT_TRUE(std::isnan(out[cells])) << test.name << " " << size;
      for (std::size_t e = 0; e < cells; ++e) {
        if (preset != ProjectionPreset::deepseek) {  // its epsilon gives the row mass
          EXPECT_TRUE(std::isfinite(out[3 * cells + e])) << test.name << " " << size;
          EXPECT_TRUE(std::isfinite(d_out[3 * cells + e])) << test.name << " " << size;
        }
        if (preset != ProjectionPreset::blog) {  // whose epsilon is relative to the size of the entries
          EXPECT_NEAR(out[5 * cells + e], clean[5 * cells + e], 2e-4) << test.name << " " << size;
          EXPECT_NEAR(out[7 * cells + e], clean[7 * cells + e], 2e-5) << test.name << " " << size;
        }
      }
      if (preset != ProjectionPreset::deepseek) {
        for (int j = 0; j < size; ++j) EXPECT_EQ(out[3 * cells + static_cast<std::size_t>(size + j)], 0) << test.name;
      }
    }
  }
}

TEST_P(ProjectionTest, BitsDoNotDependOnThePlaceInTheBatchOrTheRun) {
  for (int const size : {4, 8, 16, 30}) {
    Case const test{"bits", projection_preset(ProjectionPreset::mhc_paper), size, size, 131, 3};
    Data const data(test);
    std::size_t const cells = static_cast<std::size_t>(size * size);
    std::vector<float> whole(cells * 131), again(whole.size()), single(cells);
    project(context(), data.logit_view(), {whole.data(), 131, size, size}, test.options);
    project(context(), data.logit_view(), {again.data(), 131, size, size}, test.options);
    EXPECT_EQ(std::memcmp(whole.data(), again.data(), 4 * whole.size()), 0);
    for (int const t : {0, 17, 130}) {
      project(context(), {data.logits.data() + static_cast<std::size_t>(t) * cells, 1, size, size},
              {single.data(), 1, size, size}, test.options);
      EXPECT_EQ(std::memcmp(single.data(), &whole[static_cast<std::size_t>(t) * cells], 4 * cells), 0) << size;
    }
  }
}

TEST_P(ProjectionTest, EmptyBatchesAndOutputsOfEitherType) {
  project(context(), BatchView(static_cast<float const*>(nullptr), 0, 4, 4),
          MutableBatchView(static_cast<float*>(nullptr), 0, 4, 4), {});
  Case const test{"half", projection_preset(ProjectionPreset::mhc_paper), 4, 4, 33, 1, ElementType::bfloat16};
  Data const data(test);
  std::vector<std::uint16_t> half(16 * 33);
  std::vector<float> full(16 * 33);
  project(context(), data.logit_view(), {half.data(), ElementType::bfloat16, 33, 4, 4}, test.options);
  project(context(), data.logit_view(), {full.data(), 33, 4, 4}, test.options);
  for (std::size_t e = 0; e < full.size(); ++e) EXPECT_EQ(half[e], cpu::to_bfloat16(full[e]));
}

TEST_P(ProjectionTest, LongHistoriesFindRoom) {
  for (int const size : {4, 8, 16, 40}) {
    Case test{"long", projection_preset(ProjectionPreset::mhc_paper), size, size, 40, 0.5};
    test.options.iterations = 700;
    Data const data(test);
    std::vector<float> d_long(static_cast<std::size_t>(size * size * 40)), d_short(d_long.size());
    project_backward(context(), data.logit_view(), data.gradient_view(), {d_long.data(), 40, size, size}, test.options);
    test.options.iterations = 60;
    project_backward(context(), data.logit_view(), data.gradient_view(), {d_short.data(), 40, size, size},
                     test.options);
    for (std::size_t e = 0; e < d_long.size(); ++e) EXPECT_NEAR(d_long[e], d_short[e], 2e-5) << size;
  }
}

TEST_P(ProjectionTest, BadCallsSayWhatIsWrong) {
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
  try {
    projection_preset("mhc");
    ADD_FAILURE();
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("mhc_paper, deepseek, megatron"), std::string::npos) << error.what();
  }
}

MONGE_FOR_EACH_DEVICE(ProjectionTest);

class MhcTest : public BackendTest {};

TEST_P(MhcTest, MappingAndGradients) {
  std::vector<std::pair<std::string, MhcOptions>> variants;
  for (std::string_view const preset : projection_preset_names()) {
    MhcOptions options;
    options.projection = projection_preset(preset);
    options.projection.dustbin = false;
    options.projection.iterations = std::min(options.projection.iterations, 20);
    if (preset == "deepseek") options.pre_epsilon = 1e-6;
    variants.emplace_back(preset, options);
  }
  for (auto const& [label, options] : variants) {
    for (std::int64_t const tokens : {1, 45, 1000}) {
      for (std::int64_t const stride : {24, 29}) {
        SCOPED_TRACE(label + " " + std::to_string(tokens) + " tokens, stride " + std::to_string(stride));
        std::mt19937 random(3);
        std::normal_distribution<float> normal;
        std::vector<float> mixes(static_cast<std::size_t>(tokens * stride)), scale{0.7f, -0.4f, 1.1f}, base(24);
        for (float& x : mixes) x = normal(random);
        for (float& x : base) x = 0.5f * normal(random);
        auto const size = static_cast<std::size_t>(tokens);
        std::vector<float> pre(4 * size), post(4 * size), res(16 * size), d_pre(4 * size), d_post(4 * size),
            d_res(16 * size);
        for (auto* values : {&d_pre, &d_post, &d_res})
          for (float& x : *values) x = normal(random);
        mhc_mapping(context(), {mixes.data(), tokens, 24, stride}, scale, base, {pre.data(), tokens, 4},
                    {post.data(), tokens, 4}, {res.data(), tokens, 4, 4}, options);
        std::vector<float> d_mixes(mixes.size(), 5.0f), d_scale(3, 5.0f), d_base(24, 5.0f);
        mhc_mapping_backward(context(), {mixes.data(), tokens, 24, stride}, scale, base, {d_pre.data(), tokens, 4},
                             {d_post.data(), tokens, 4}, {d_res.data(), tokens, 4, 4},
                             {d_mixes.data(), tokens, 24, stride}, d_scale, d_base, options);
        // Forward and d_mixes token by token, from the projection that is tested above.
        std::vector<float> logits(16 * size), d_logits(16 * size), expected(16 * size);
        for (std::size_t t = 0; t < size; ++t)
          for (std::size_t k = 0; k < 16; ++k)
            logits[16 * t + k] = std::fma(scale[2], mixes[t * static_cast<std::size_t>(stride) + 8 + k], base[8 + k]);
        project(context(), {logits.data(), tokens, 4, 4}, {expected.data(), tokens, 4, 4}, options.projection);
        project_backward(context(), {logits.data(), tokens, 4, 4}, {d_res.data(), tokens, 4, 4},
                         {d_logits.data(), tokens, 4, 4}, options.projection);
        std::vector<double> sums(27), magnitude(27);
        for (std::size_t t = 0; t < size; ++t) {
          for (std::size_t k = 0; k < 24; ++k) {
            std::size_t const part = k < 4 ? 0 : k < 8 ? 1 : 2;
            double const mix = mixes[t * static_cast<std::size_t>(stride) + k];
            double d;
            if (k < 8) {
              double const s = 1 / (1 + std::exp(-(scale[part] * mix + base[k])));
              double const value = k < 4 ? s + options.pre_epsilon : options.post_factor * s;
              EXPECT_NEAR((k < 4 ? pre : post)[4 * t + k % 4], value, 1e-6);
              d = (k < 4 ? d_pre[4 * t + k] : options.post_factor * d_post[4 * t + k - 4]) * s * (1 - s);
            } else {
              EXPECT_NEAR(res[16 * t + k - 8], expected[16 * t + k - 8], 1e-6);
              d = d_logits[16 * t + k - 8];
            }
            EXPECT_NEAR(d_mixes[t * static_cast<std::size_t>(stride) + k], scale[part] * d, 3e-6);
            sums[part] += d * mix;
            sums[3 + k] += d;
            magnitude[part] += std::abs(d * mix);
            magnitude[3 + k] += std::abs(d);
          }
          for (std::int64_t k = 24; k < stride; ++k)
            EXPECT_EQ(d_mixes[t * static_cast<std::size_t>(stride) + static_cast<std::size_t>(k)], 5.0f);
        }
        for (std::size_t k = 0; k < 27; ++k)
          EXPECT_NEAR(k < 3 ? d_scale[k] : d_base[k - 3], sums[k], 3e-6 * (1 + magnitude[k])) << k;
        std::vector<float> again_scale(3), again_base(24);
        mhc_mapping_backward(context(), {mixes.data(), tokens, 24, stride}, scale, base, {d_pre.data(), tokens, 4},
                             {d_post.data(), tokens, 4}, {d_res.data(), tokens, 4, 4},
                             {d_mixes.data(), tokens, 24, stride}, again_scale, again_base, options);
        EXPECT_EQ(again_scale, d_scale);
        EXPECT_EQ(again_base, d_base);
      }
    }
  }
}

MONGE_FOR_EACH_DEVICE(MhcTest);

}  // namespace
}  // namespace monge::oracle
