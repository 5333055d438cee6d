// The problems that the tests of project() and project_backward() share: a covering selection of the options.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/backend_test.hpp"
#include "projection/reference.hpp"

namespace monge::oracle {

struct ProjectionCase {
  std::string name;
  ProjectionOptions options;
  int rows, columns;
  int batch = 37;
  double spread = 1;  // Standard deviation of the logits.
  DataType type = DataType::float32;
  bool strided = false;
  bool marginals = false;
};

ProjectionOptions with(ProjectionPreset preset, int iterations, auto&& change) {
  ProjectionOptions options = projection_preset(preset);
  options.iterations = iterations;
  change(options);
  return options;
}
inline ProjectionOptions with(ProjectionPreset preset, int iterations) {
  return with(preset, iterations, [](ProjectionOptions&) {});
}

std::vector<ProjectionCase> cases();

/// Expects `call` to throw invalid_argument with a message that begins with `text`.
template <class Call>
void expect_refused(std::string const& text, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error, but expected " << text;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(std::string(error.what()).rfind(text, 0), 0u) << error.what() << "\nexpected " << text;
  }
}

/// The relative error allowed to an entry. Entries of K are off by the rounding of their exponent, sums by their
/// length; half-steps amplify neither.
double entry_tolerance(ProjectionCase const& test);
/// The absolute error allowed to a gradient whose entries are up to `largest`. Terms as large as those of d_out, up to
/// `terms`, cancel and leave their rounding; the rest grows over the half-steps.
inline double gradient_tolerance(double largest, double terms) {
  return 2e-5 * largest + 1e-7 * terms;
}

/// The inputs of a case, rounded to the element type, so that the reference reads what the library reads.
struct Data {
  ProjectionCase const& test;
  int n, m;
  std::int64_t row_stride, batch_stride;
  std::vector<float> logits, gradient, a, b;
  std::vector<std::uint16_t> logit_bits, gradient_bits;

  explicit Data(ProjectionCase const& given);
  BatchView logit_view() const {
    void const* const data =
        test.type == DataType::float32 ? static_cast<void const*>(logits.data()) : logit_bits.data();
    return {data, test.type, test.batch, test.rows, test.columns, batch_stride, row_stride};
  }
  BatchView gradient_view() const {
    void const* const data =
        test.type == DataType::float32 ? static_cast<void const*>(gradient.data()) : gradient_bits.data();
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

 private:
  /// Rounds `values` to what the element type holds.
  void round(std::vector<float>& values, std::vector<std::uint16_t>& bits) const;
};

}  // namespace monge::oracle
