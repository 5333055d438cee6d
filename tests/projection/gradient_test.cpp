// project_backward() against finite differences of the float64 references, and the implicit gradient against that of
// the limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class ProjectionBackward : public BackendTest {};

TEST_P(ProjectionBackward, GradientMatchesFiniteDifferences) {
  for (ProjectionCase test : cases()) {
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
      int const every = test.rows > 20 ? 97 : 1;  // Large matrices: some entries.
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
      double largest = 0, terms = 0;
      for (double const g : expected) largest = std::max(largest, std::abs(g));
      for (std::size_t e = 0; e < size; ++e)
        terms = std::max<double>(terms, std::abs(data.gradient[static_cast<std::size_t>(t) * size + e]));
      double const allowed = gradient_tolerance(largest, terms);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        double const actual = d_logits[static_cast<std::size_t>(t * test.rows * test.columns + where[k])];
        EXPECT_NEAR(actual, expected[k], allowed) << "matrix " << t << " entry " << where[k];
        if (!(std::abs(actual - expected[k]) <= allowed)) break;
      }
      if (test.options.dustbin) {
        double const d = slope(reference(x, score + h), reference(x, score - h), 2 * h);
        EXPECT_NEAR(d_score[static_cast<std::size_t>(t)], d, 3e-5 * std::abs(d) + 2e-5 * largest);
      }
    }
  }
}

/// The derivative of large matrices in a random direction of signs. Its terms are independent in sign, so that their
/// errors add up like the square root of their number.
TEST_P(ProjectionBackward, LargeMatricesByDirections) {
  auto const large = [](ProjectionPreset preset, int rows, int columns, int batch) {
    return ProjectionCase{std::string(name(preset)), with(preset, 3, [](auto&) {}), rows, columns, batch};
  };
  using enum ProjectionPreset;
  for (ProjectionCase const& test :
       {large(superglue, 1024, 1024, 1), large(mhc_paper, 300, 257, 2), large(deepseek, 257, 300, 2),
        large(megatron, 1030, 7, 3), large(blog, 7, 1030, 3), large(gumbel_sinkhorn, 140, 290, 3)}) {
    SCOPED_TRACE(test.name);
    Data const data(test);
    auto const size = static_cast<std::size_t>(test.rows) * static_cast<std::size_t>(test.columns);
    std::vector<float> d_logits(size * static_cast<std::size_t>(test.batch), NAN);
    project_backward(context(), data.logit_view(), data.gradient_view(),
                     {d_logits.data(), test.batch, test.rows, test.columns}, test.options);
    for (int t = 0; t < test.batch; ++t) {
      std::vector<double> const x = data.matrix(t);
      std::vector<double> up = x, down = x;
      double const h = 1e-5;
      double slope = 0, squares = 0, largest = 0;
      std::mt19937 random(5);
      for (std::size_t e = 0; e < size; ++e) {
        double const sign = random() % 2 == 0 ? 1 : -1, d = d_logits[static_cast<std::size_t>(t) * size + e];
        up[e] += sign * h, down[e] -= sign * h;
        slope += sign * d;
        squares += d * d;
        largest = std::max(largest, std::abs(d));
      }
      double const score = test.options.dustbin_score;
      std::vector<double> const above = data.reference()(up, score), below = data.reference()(down, score);
      double expected = 0;
      for (std::size_t e = 0; e < above.size(); ++e)
        expected += data.gradient[static_cast<std::size_t>(t) * above.size() + e] * (above[e] - below[e]) / (2 * h);
      EXPECT_NEAR(slope, expected, 2e-5 * std::sqrt(squares) + 1e-5 * largest) << t;
      EXPECT_GT(squares, 0);
    }
  }
}

TEST_P(ProjectionBackward, ToleranceStopsEachMatrixByItself) {
  for (ProjectionPreset const preset : {ProjectionPreset::mhc_paper, ProjectionPreset::blog, ProjectionPreset::deepseek,
                                        ProjectionPreset::gumbel_sinkhorn}) {
    for (int const size : {4, 5, 16, 70, 130}) {
      ProjectionCase test{std::string(name(preset)), projection_preset(preset), size, size, size == 70 ? 3 : 40, 1.5};
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
        // The gradient goes through the steps that were done, no others.
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

TEST_P(ProjectionBackward, ImplicitGradientIsThatOfTheLimit) {
  for (ProjectionOrder const order : {ProjectionOrder::rows_first, ProjectionOrder::columns_first}) {
    for (int const size : {3, 4, 12, 67}) {
      for (bool const log_domain : {false, true}) {
        ProjectionCase test{"implicit", {}, size, size, 9, 0.7};
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
        test.options.iterations = 1;  // Not converged, so the gradient is the unrolled one.
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

TEST_P(ProjectionBackward, ImplicitIsDecidedMatrixByMatrix) {
  for (int const size : {4, 6}) {
    ProjectionCase test{"mixed", {}, size, size, 40, 1.5};
    test.options.iterations = 6;
    test.options.gradient = ProjectionGradient::implicit;
    test.options.implicit_tolerance = 1e-3;
    Data const data(test);
    std::size_t const cells = static_cast<std::size_t>(size * size);
    std::vector<float> all(cells * 40), unrolled(all.size()), forced(all.size());
    auto const run = [&](std::vector<float>& into) {
      project_backward(context(), data.logit_view(), data.gradient_view(), {into.data(), 40, size, size}, test.options);
    };
    run(all);
    test.options.implicit_tolerance = 1e6;  // Any sums are right to this.
    run(forced);
    test.options.gradient = ProjectionGradient::unrolled;
    run(unrolled);
    std::vector<float> out(cells * 40);
    project(context(), data.logit_view(), {out.data(), 40, size, size}, test.options);
    int converged = 0;
    for (std::size_t t = 0; t < 40; ++t) {
      double error = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < static_cast<std::size_t>(size); ++j)
          sum += out[t * cells + i * static_cast<std::size_t>(size) + j];
        error = std::max(error, std::abs(sum - 1));
      }
      if (std::abs(error - 1e-3) < 1e-5) continue;  // Here rounding decides which gradient it is.
      converged += error < 1e-3;
      std::vector<float> const& expected = error < 1e-3 ? forced : unrolled;
      for (std::size_t e = 0; e < cells; ++e)
        EXPECT_NEAR(all[t * cells + e], expected[t * cells + e], 1e-6) << size << " matrix " << t;
    }
    EXPECT_GT(converged, 0);
    EXPECT_LT(converged, 40);
  }
}

/// Histories that fit the shared memory of a GPU, and longer ones.
TEST_P(ProjectionBackward, HistoriesOfAnyLengthFindRoom) {
  for (int const size : {16, 64, 128}) {
    ProjectionCase test{"lengths", projection_preset(ProjectionPreset::mhc_paper), size, size, 2, 0.5};
    Data const data(test);
    std::vector<float> d_logits(static_cast<std::size_t>(size * size * 2)), d_last;
    for (int iterations = 10; iterations <= 60; iterations += size == 128 ? 1 : 5) {
      test.options.iterations = iterations;
      project_backward(context(), data.logit_view(), data.gradient_view(), {d_logits.data(), 2, size, size},
                       test.options);
      for (std::size_t e = 0; e < d_last.size(); ++e)
        ASSERT_NEAR(d_logits[e], d_last[e], 2e-5) << size << " " << iterations;
      d_last = d_logits;
    }
  }
}

TEST_P(ProjectionBackward, LongHistoriesFindRoom) {
  for (int const size : {4, 8, 16, 40, 90}) {
    ProjectionCase test{"long", projection_preset(ProjectionPreset::mhc_paper), size, size, 40, 0.5};
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

MONGE_FOR_EACH_DEVICE(ProjectionBackward);

}  // namespace
}  // namespace monge::oracle
