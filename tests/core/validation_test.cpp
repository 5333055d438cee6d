// Bad input: every wrong call throws an Error with the right code, and one line that names the field, the value and
// what is allowed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A valid call: 4 x 2 points onto 3 x 2, or the matrix.
struct Call {
  std::vector<double> x{0, 0, 1, 0, 0, 1, 1, 1}, y{0.5, 0, 1, 0.5, 0, 2};
  std::vector<double> a{0.25, 0.25, 0.25, 0.25}, b{0.5, 0.25, 0.25};
  std::vector<double> f, g;
  std::vector<double> cost{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::optional<MatrixView> matrix;
  std::int64_t x_rows = 4, y_rows = 3, x_columns = 2, y_columns = 2, x_stride = 2, y_stride = 2;
  bool x_null = false, y_null = false;
  Device x_device, a_device, f_device;
  DataType x_type = DataType::float64, a_type = DataType::float64;
  double scale = 1;
  CostFunction cost_function = CostFunction::sqeuclidean;
  double p = 2;
  std::vector<std::int64_t> labels_x, labels_y;
  std::vector<double> label_cost;
  std::int64_t label_rows = 0, label_columns = 0;
  double label_weight = 1;
  SolveOptions options{.eps = 1};

  /// Two classes of x, three of y.
  void add_labels() {
    labels_x = {0, 1, 1, 0}, labels_y = {0, 1, 2};
    label_cost = {0, 1, 2, 3, 4, 5};
    label_rows = 2, label_columns = 3;
  }

  Plan run(Context const& context) {
    options.f = VectorView(f.data(), static_cast<std::int64_t>(f.size()), 1, f_device);
    options.g = g;
    VectorView const a(this->a.data(), a_type, static_cast<std::int64_t>(this->a.size()), 1, a_device);
    if (matrix) return solve(context, CostMatrix{*matrix}, a, b, options);
    PointCloud const geometry{MatrixView(x_null ? nullptr : x.data(), x_type, x_rows, x_columns, x_stride, x_device),
                              MatrixView(y_null ? nullptr : y.data(), y_rows, y_columns, y_stride),
                              scale,
                              cost_function,
                              p,
                              {{labels_x.data(), static_cast<std::int64_t>(labels_x.size())},
                               {labels_y.data(), static_cast<std::int64_t>(labels_y.size())},
                               MatrixView(label_cost.data(), label_rows, label_columns),
                               label_weight}};
    return solve(context, geometry, a, b, options);
  }
};

struct BadCall {
  char const* name;
  std::function<void(Call&)> spoil;
  std::vector<char const*> message;  // must occur
  ErrorCode code = ErrorCode::invalid_argument;
};

void PrintTo(BadCall const& call, std::ostream* out) {
  *out << call.name;
}

std::vector<BadCall> const& bad_calls() {
  static std::int64_t const huge = std::numeric_limits<std::int64_t>::max() / 4;
  static std::vector<BadCall> const table{
      {"eps_negative", [](Call& c) { c.options.eps = -0.5; }, {"eps", "-0.5", "> 0"}},
      {"eps_nan", [](Call& c) { c.options.eps = kNan; }, {"eps", "nan", "> 0"}},
      {"eps_infinite", [](Call& c) { c.options.eps = kInfinity; }, {"eps", "inf", "finite"}},
      {"eps_twice", [](Call& c) { c.options.eps_relative = 0.5; }, {"eps_relative", "0.5", "eps", "1"}},
      {"eps_relative_negative",
       [](Call& c) {
         c.options.eps = 0;
         c.options.eps_relative = -0.5;
       },
       {"eps_relative", "-0.5", "> 0"}},
      {"eps_relative_nan",
       [](Call& c) {
         c.options.eps = 0;
         c.options.eps_relative = kNan;
       },
       {"eps_relative", "nan", "> 0"}},
      {"eps_relative_of_no_cost",
       [](Call& c) {
         c.options.eps = 0;
         c.options.eps_relative = 0.5;
         c.x.assign(8, 3);
         c.y.assign(6, 3);
       },
       {"eps_relative", "0.5", "mean cost of 0", "> 0", "eps"}},
      {"tolerance_negative", [](Call& c) { c.options.tolerance = -1; }, {"tolerance", "-1", ">= 0"}},
      {"tolerance_nan", [](Call& c) { c.options.tolerance = kNan; }, {"tolerance", "nan", ">= 0"}},
      {"iterations_zero", [](Call& c) { c.options.iterations = 0; }, {"iterations", "0", ">= 1"}},
      {"iterations_negative", [](Call& c) { c.options.iterations = -3; }, {"iterations", "-3", ">= 1"}},
      {"annealing_zero", [](Call& c) { c.options.annealing = 0; }, {"annealing", "0", "(0, 1]"}},
      {"annealing_above_one", [](Call& c) { c.options.annealing = 1.5; }, {"annealing", "1.5", "(0, 1]"}},
      {"annealing_nan", [](Call& c) { c.options.annealing = kNan; }, {"annealing", "nan", "(0, 1]"}},
      {"check_every_zero", [](Call& c) { c.options.check_every = 0; }, {"check_every", "0", ">= 1"}},
      {"cache_bytes_negative", [](Call& c) { c.options.cache_bytes = -8; }, {"cache_bytes", "-8", ">= 0"}},
      {"cache_bytes_nan", [](Call& c) { c.options.cache_bytes = kNan; }, {"cache_bytes", "nan", ">= 0"}},
      {"schedule_unknown", [](Call& c) { c.options.schedule = Schedule(17); }, {"schedule", "17", "alternating"}},
      {"precision_unknown", [](Call& c) { c.options.precision = Precision(17); }, {"precision", "17", "float64"}},
      {"scale_zero", [](Call& c) { c.scale = 0; }, {"scale", "0", "> 0"}},
      {"scale_negative", [](Call& c) { c.scale = -2; }, {"scale", "-2", "> 0"}},
      {"scale_nan", [](Call& c) { c.scale = kNan; }, {"scale", "nan", "> 0"}},

      {"cost_function_unknown",
       [](Call& c) { c.cost_function = CostFunction(17); },
       {"cost_function", "17", "sqeuclidean, euclidean, cosine, dot or p-norm"}},
      {"p_below_one",
       [](Call& c) {
         c.cost_function = CostFunction::p_norm;
         c.p = 0.5;
       },
       {"norm_p", "0.5", ">= 1"}},
      {"p_nan",
       [](Call& c) {
         c.cost_function = CostFunction::p_norm;
         c.p = kNan;
       },
       {"norm_p", "nan", ">= 1"}},
      {"no_direction", [](Call& c) { c.cost_function = CostFunction::cosine; }, {"x", "row 0", "length 0", "cosine"}},
      {"nan_of_directions",
       [](Call& c) {
         c.cost_function = CostFunction::cosine;
         c.x = {1, 0, 1, 0, 0, kNan, 1, 1};
       },
       {"x", "row 2", "column 1", "nan", "finite"}},
      {"labels_x_missing",
       [](Call& c) {
         c.add_labels();
         c.labels_x.clear();
       },
       {"labels_x", "0 entries", "4"}},
      {"labels_y_short",
       [](Call& c) {
         c.add_labels();
         c.labels_y.pop_back();
       },
       {"labels_y", "2 entries", "3"}},
      {"label_cost_missing",
       [](Call& c) {
         c.add_labels();
         c.label_rows = c.label_columns = 0;
       },
       {"label_cost", "0 x 0", "at least one"}},
      {"label_too_large",
       [](Call& c) {
         c.add_labels();
         c.labels_x[3] = 2;
       },
       {"labels_x", "point 3", "label 2", "[0, 2)"}},
      {"label_negative",
       [](Call& c) {
         c.add_labels();
         c.labels_y[1] = -1;
       },
       {"labels_y", "point 1", "label -1", "[0, 3)"}},
      {"label_cost_nan",
       [](Call& c) {
         c.add_labels();
         c.label_cost[4] = kNan;
       },
       {"label_cost", "row 1, column 1", "nan", "finite"}},
      {"label_weight_infinite",
       [](Call& c) {
         c.add_labels();
         c.label_weight = kInfinity;
       },
       {"label_weight", "inf", "finite"}},

      {"x_nan", [](Call& c) { c.x[5] = kNan; }, {"x", "row 2", "column 1", "nan", "finite"}},
      {"y_infinite", [](Call& c) { c.y[2] = -kInfinity; }, {"y", "row 1", "column 0", "-inf", "finite"}},
      {"x_nan_without_weight",
       [](Call& c) {
         c.x[0] = kNan;
         c.a = {0, 0.5, 0.25, 0.25};
       },
       {"x", "row 0", "column 0", "nan", "finite"}},
      {"x_empty", [](Call& c) { c.x_rows = 0, c.a.clear(); }, {"x", "0 x 2", "at least one"}},
      {"y_empty", [](Call& c) { c.y_rows = 0, c.b.clear(); }, {"y", "0 x 2", "at least one"}},
      {"no_dimension", [](Call& c) { c.x_columns = c.y_columns = 0; }, {"x", "4 x 0", "at least one"}},
      {"rows_negative", [](Call& c) { c.x_rows = -4; }, {"x", "-4"}},
      {"dimensions_differ", [](Call& c) { c.y_columns = 1; }, {"y", "1 column", "2"}},
      {"x_null", [](Call& c) { c.x_null = true; }, {"x", "null", "4 x 2"}},
      {"y_null", [](Call& c) { c.y_null = true; }, {"y", "null", "3 x 2"}},
      {"x_stride_short", [](Call& c) { c.x_stride = 1; }, {"x", "row stride 1", "2"}},
      {"x_stride_negative", [](Call& c) { c.x_stride = -7; }, {"x", "row stride -7", "2"}},
      {"x_stride_backwards", [](Call& c) { c.x_stride = -1; }, {"x", "row stride -1", "2"}},
      {"y_stride_zero", [](Call& c) { c.y_stride = 0; }, {"y", "row stride 0", "2"}},
      {"x_bytes_overflow", [](Call& c) { c.x_stride = huge; }, {"x", "4 x 2", "63 bits"}},
      {"x_rows_overflow", [](Call& c) { c.x_rows = huge, c.a.clear(); }, {"x", "63 bits"}},

      {"a_negative",
       [](Call& c) {
         c.a = {0.5, -0.25, 0.5, 0.25};
       },
       {"a", "entry 1", "-0.25", ">= 0"}},
      {"b_negative",
       [](Call& c) {
         c.b = {0.75, 0.5, -0.25};
       },
       {"b", "entry 2", "-0.25", ">= 0"}},
      {"a_nan", [](Call& c) { c.a[2] = kNan; }, {"a", "entry 2", "nan", "finite"}},
      {"b_infinite", [](Call& c) { c.b[0] = kInfinity; }, {"b", "entry 0", "inf", "finite"}},
      {"a_without_mass",
       [](Call& c) {
         c.a = {0, 0, 0, 0};
       },
       {"a", "total", "0", "positive"}},
      {"b_without_mass",
       [](Call& c) {
         c.b = {0, 0, 0};
       },
       {"b", "total", "0", "positive"}},
      {"a_total_overflows", [](Call& c) { c.a = std::vector<double>(4, 1e308); }, {"a", "total", "inf", "finite"}},
      {"totals_differ",
       [](Call& c) {
         c.b = {0.5, 0.25, 0.5};
       },
       {"b", "1.25", "equal", "1", "penalty_a"}},
      {"penalty_is_zero", [](Call& c) { c.options.penalty_a = 0; }, {"penalty_a", "is 0; must be > 0"}},
      {"penalty_is_negative", [](Call& c) { c.options.penalty_b = -1; }, {"penalty_b", "is -1; must be > 0"}},
      {"penalty_is_nan", [](Call& c) { c.options.penalty_b = kNan; }, {"penalty_b", "is nan; must be > 0"}},
      {"totals_differ_slightly", [](Call& c) { c.b[0] += 1e-5; }, {"b", "1.00001", "equal"}},
      {"a_too_short",
       [](Call& c) {
         c.a = {0.5, 0.5};
       },
       {"a", "2 entries", "4, one for each row of x"}},
      {"b_too_long",
       [](Call& c) {
         c.b = {0.25, 0.25, 0.25, 0.25};
       },
       {"b", "4 entries", "3, one for each row of y"}},

      {"f_without_g", [](Call& c) { c.f.assign(4, 0); }, {"g", "missing", "both"}},
      {"g_without_f", [](Call& c) { c.g.assign(3, 0); }, {"f", "missing", "both"}},
      {"f_too_long", [](Call& c) { c.f.assign(5, 0), c.g.assign(3, 0); }, {"f", "5 entries", "4"}},
      {"g_too_short", [](Call& c) { c.f.assign(4, 0), c.g.assign(2, 0); }, {"g", "2 entries", "3"}},
      {"f_nan",
       [](Call& c) {
         c.f = {0, kNan, 0, 0}, c.g.assign(3, 0);
       },
       {"f", "entry 1", "nan", "finite"}},
      {"g_infinite",
       [](Call& c) {
         c.f.assign(4, 0), c.g = {0, 0, kInfinity};
       },
       {"g", "entry 2", "inf", "finite"}},

      {"x_float16", [](Call& c) { c.x_type = DataType::float16; }, {"x", "is float16; must be float32 or float64"}},
      {"a_bfloat16", [](Call& c) { c.a_type = DataType::bfloat16; }, {"a", "is bfloat16; must be float32 or float64"}},
      {"x_on_another_device",
       [](Call& c) {
         c.x_device = {DeviceType::cuda, 1};
       },
       {"x", "cuda:1", "host"}},
      {"a_on_another_device",
       [](Call& c) {
         c.a_device = {DeviceType::cuda, 1};
       },
       {"a", "cuda:1", "host"}},
      {"f_on_another_device",
       [](Call& c) {
         c.f.assign(4, 0), c.g.assign(3, 0), c.f_device = {DeviceType::cuda, 1};
       },
       {"f", "cuda:1", "host"}},

      {"cost_empty",
       [](Call& c) { c.matrix.emplace(c.cost.data(), 0, 3), c.a.clear(); },
       {"cost", "0 x 3", "at least one"}},
      {"cost_rows", [](Call& c) { c.matrix.emplace(c.cost.data(), 3, 3); }, {"a", "4 entries", "3", "row of C"}},
      {"cost_columns", [](Call& c) { c.matrix.emplace(c.cost.data(), 4, 2); }, {"b", "3 entries", "2", "column of C"}},
      {"cost_null", [](Call& c) { c.matrix.emplace(static_cast<double*>(nullptr), 4, 3); }, {"cost", "null", "4 x 3"}},
      {"cost_stride_short", [](Call& c) { c.matrix.emplace(c.cost.data(), 4, 3, 2); }, {"cost", "row stride 2", "3"}},
      {"cost_bytes_overflow",
       [](Call& c) { c.matrix.emplace(c.cost.data(), 4, 3, huge); },
       {"cost", "4 x 3", "63 bits"}},
      {"cost_float16",
       [](Call& c) { c.matrix.emplace(c.cost.data(), DataType::float16, 4, 3); },
       {"cost", "is float16; must be float32 or float64"}},
      {"cost_on_another_device",
       [](Call& c) {
         c.matrix.emplace(c.cost.data(), 4, 3, 3, Device{DeviceType::cuda, 1});
       },
       {"cost", "cuda:1", "host"}},
      {"cost_nan",
       [](Call& c) { c.cost[5] = kNan, c.matrix.emplace(c.cost.data(), 4, 3); },
       {"cost", "row 1, column 2 is nan", "finite or +infinity"}},
      {"cost_minus_infinity",
       [](Call& c) { c.cost[9] = -kInfinity, c.matrix.emplace(c.cost.data(), 4, 3); },
       {"cost", "row 3, column 0 is -inf", "finite or +infinity"}},
      {"cost_row_without_partner",
       [](Call& c) {
         c.cost[3] = c.cost[4] = kInfinity, c.b = {0.5, 0.5, 0};
         c.matrix.emplace(c.cost.data(), 4, 3);
       },
       {"cost", "row 1 has weight 0.25", "no finite cost to a column of positive weight"}},
      {"cost_column_without_partner",
       [](Call& c) {
         c.cost[2] = c.cost[5] = c.cost[8] = c.cost[11] = kInfinity;
         c.matrix.emplace(c.cost.data(), 4, 3);
       },
       {"cost", "column 2 has weight 0.25", "no finite cost to a row of positive weight"}},
      {"cost_range_overflows",
       [](Call& c) { c.cost[0] = -1e308, c.cost[1] = 1e308, c.matrix.emplace(c.cost.data(), 4, 3); },
       {"cost", "-1e+308", "1e+308", "finite"}},

      {"tf32_on_the_cpu",
       [](Call& c) { c.options.precision = Precision::tf32; },
       {"precision", "tf32", "float32"},
       ErrorCode::unsupported},
  };
  return table;
}

void expect_error(ErrorCode code, std::vector<char const*> const& parts, std::function<void()> const& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (Error const& error) {
    std::string const message = error.what();
    EXPECT_EQ(name(error.code()), name(code)) << message;
    for (char const* part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << " | lacks: " << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    // The field comes first, so that a reader finds it.
    EXPECT_EQ(message.rfind(std::string(parts[0]) + ":", 0), 0u) << message;
  }
}

TEST(Call, that_the_table_spoils_is_valid) {
  Plan const plan = Call().run(Context::cpu());
  EXPECT_EQ(plan.status(), Status::converged);
}

class BadCalls : public testing::TestWithParam<BadCall> {};
INSTANTIATE_TEST_SUITE_P(, BadCalls, testing::ValuesIn(bad_calls()),
                         [](auto const& info) { return std::string(info.param.name); });

TEST_P(BadCalls, name_field_value_and_what_is_allowed) {
  Call call;
  GetParam().spoil(call);
  expect_error(GetParam().code, GetParam().message, [&] { call.run(Context::cpu()); });
}

TEST(UnequalTotals, are_equal_enough_when_float32_rounds_them) {
  Call call;
  call.b[0] += 1e-8;
  EXPECT_NO_THROW(call.run(Context::cpu()));
}

TEST(Totals, need_not_be_one) {
  Call call;
  for (double& weight : call.a) weight *= 7e5;
  for (double& weight : call.b) weight *= 7e5;
  Plan const plan = call.run(Context::cpu());
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  EXPECT_NEAR(plan.report().mass, 7e5, 1e-6);
}

/// Wrong shapes for what a plan writes or reads; 4 x 3, d = 2.
struct BadUse {
  char const* name;
  std::function<void(Plan const&)> call;
  std::vector<char const*> message;
};

void PrintTo(BadUse const& use, std::ostream* out) {
  *out << use.name;
}

std::vector<BadUse> const& bad_uses() {
  static std::vector<double> buffer(100, 0.0);
  static auto const vector = [](std::int64_t size) { return MutableVectorView(buffer.data(), size); };
  static auto const input = [](std::int64_t rows, std::int64_t columns, std::int64_t stride = kContiguous) {
    return MatrixView(buffer.data(), rows, columns, stride);
  };
  static auto const output = [](std::int64_t rows, std::int64_t columns, std::int64_t stride = kContiguous) {
    return MutableMatrixView(buffer.data() + 50, rows, columns, stride);
  };
  static std::vector<std::int64_t> indices(100, 0);
  static auto const index = [](std::int64_t rows, std::int64_t columns, std::int64_t stride = 9) {
    return MutableIndexView{indices.data(), rows, columns, stride, {}};
  };
  static std::vector<double> const nans(8, kNan);
  static std::vector<BadUse> const table{
      {"potentials_f_short", [](Plan const& p) { p.potentials(vector(3), vector(3)); }, {"f", "3", "4"}},
      {"potentials_g_long", [](Plan const& p) { p.potentials(vector(4), vector(4)); }, {"g", "4", "3"}},
      {"marginals_row_short", [](Plan const& p) { p.marginals(vector(1), vector(3)); }, {"row", "1", "4"}},
      {"marginals_column_long", [](Plan const& p) { p.marginals(vector(4), vector(9)); }, {"column", "9", "3"}},
      {"apply_v_rows", [](Plan const& p) { p.apply(input(4, 2), output(4, 2)); }, {"v", "4 x 2", "3"}},
      {"apply_out_columns", [](Plan const& p) { p.apply(input(3, 2), output(4, 1)); }, {"out", "4 x 1", "4 x 2"}},
      {"apply_out_stride", [](Plan const& p) { p.apply(input(3, 2), output(4, 2, 1)); }, {"out", "stride 1", "2"}},
      {"apply_v_null",
       [](Plan const& p) { p.apply(MatrixView(static_cast<double*>(nullptr), 3, 2), output(4, 2)); },
       {"v", "null"}},
      {"transpose_u_rows", [](Plan const& p) { p.apply_transpose(input(3, 2), output(3, 2)); }, {"u", "3 x 2", "4"}},
      {"transpose_out", [](Plan const& p) { p.apply_transpose(input(4, 2), output(4, 2)); }, {"out", "4 x 2", "3 x 2"}},
      {"hadamard_l_rows",
       [](Plan const& p) { p.apply_hadamard(input(3, 2), input(3, 2), input(3, 1), output(4, 1)); },
       {"l", "3 x 2", "4 x 2"}},
      {"hadamard_r_columns",
       [](Plan const& p) { p.apply_hadamard(input(4, 2), input(3, 1), input(3, 1), output(4, 1)); },
       {"r", "3 x 1", "3 x 2"}},
      {"hadamard_l_empty",
       [](Plan const& p) { p.apply_hadamard(input(4, 0), input(3, 0), input(3, 1), output(4, 1)); },
       {"l", "0 columns"}},
      {"hadamard_transpose_u",
       [](Plan const& p) { p.apply_hadamard_transpose(input(4, 2), input(3, 2), input(3, 1), output(3, 1)); },
       {"u", "3 x 1", "4 x 1"}},
      {"gram_w", [](Plan const& p) { p.apply_gram(vector(3), vector(3), vector(3)); }, {"w", "3", "4"}},
      {"gram_v", [](Plan const& p) { p.apply_gram(vector(4), vector(4), vector(3)); }, {"v", "4", "3"}},
      {"gram_transpose_out",
       [](Plan const& p) { p.apply_gram_transpose(vector(3), vector(4), vector(3)); },
       {"out", "3", "4"}},
      {"barycentric_out", [](Plan const& p) { p.barycentric_projection(output(3, 2)); }, {"out", "3 x 2", "4 x 2"}},
      {"map_dimension", [](Plan const& p) { p.map(input(5, 3), output(5, 2)); }, {"points", "5 x 3", "2"}},
      {"map_out", [](Plan const& p) { p.map(input(5, 2), output(4, 2)); }, {"out", "4 x 2", "5 x 2"}},
      {"map_nan",
       [](Plan const& p) { p.map(MatrixView(nans.data(), 4, 2), output(4, 2)); },
       {"points", "row 0", "column 0", "nan", "finite"}},
      {"potential_dimension", [](Plan const& p) { p.potential(input(5, 1), vector(5)); }, {"points", "5 x 1", "2"}},
      {"apply_out_float16",
       [](Plan const& p) { p.apply(input(3, 2), MutableMatrixView(buffer.data() + 50, DataType::float16, 4, 2)); },
       {"out", "is float16; must be float32 or float64"}},
      {"apply_v_elsewhere",
       [](Plan const& p) {
         p.apply(MatrixView(buffer.data(), 3, 2, 2, {DeviceType::cuda, 1}), output(4, 2));
       },
       {"v", "cuda:1", "host"}},
      {"apply_out_elsewhere",
       [](Plan const& p) {
         p.apply(input(3, 2), MutableMatrixView(buffer.data() + 50, 4, 2, 2, {DeviceType::cuda, 1}));
       },
       {"out", "cuda:1", "host"}},
      {"marginals_row_elsewhere",
       [](Plan const& p) {
         p.marginals(MutableVectorView(buffer.data(), 4, 1, {DeviceType::cuda, 1}), vector(3));
       },
       {"row", "cuda:1", "host"}},
      {"potential_out", [](Plan const& p) { p.potential(input(5, 2), vector(6)); }, {"out", "6", "5"}},
      {"top_k_none", [](Plan const& p) { p.top_k(index(4, 0), output(4, 0)); }, {"k", "0", "[1, 3]"}},
      {"top_k_too_many", [](Plan const& p) { p.top_k(index(4, 4), output(4, 4)); }, {"k", "4", "[1, 3]"}},
      {"top_k_indices", [](Plan const& p) { p.top_k(index(3, 2), output(4, 2)); }, {"indices", "3 x 2", "4 x 2"}},
      {"top_k_stride", [](Plan const& p) { p.top_k(index(4, 2, 1), output(4, 2)); }, {"indices", "stride 1", "2"}},
      {"top_k_values", [](Plan const& p) { p.top_k(index(4, 2), output(4, 1)); }, {"values", "4 x 1", "4 x 2"}},
      {"top_k_null",
       [](Plan const& p) {
         p.top_k({nullptr, 4, 2, 2, {}}, output(4, 2));
       },
       {"indices", "null"}},
      {"top_k_transpose", [](Plan const& p) { p.top_k_transpose(index(3, 5), output(3, 5)); }, {"k", "5", "[1, 4]"}},
      {"count_above_nan", [](Plan const& p) { p.count_above(kNan, index(5, 1)); }, {"threshold", "nan", ">= 0"}},
      {"count_above_negative", [](Plan const& p) { p.count_above(-1, index(5, 1)); }, {"threshold", "-1", ">= 0"}},
      {"count_above_rows", [](Plan const& p) { p.count_above(0, index(4, 1)); }, {"row_begin", "4 x 1", "5 x 1"}},
      {"entries_above_values",
       [](Plan const& p) { p.entries_above(0, index(5, 1), index(7, 1), vector(8)); },
       {"values", "8", "7"}},
      {"entries_above_columns",
       [](Plan const& p) { p.entries_above(0, index(5, 1), index(7, 2), vector(7)); },
       {"columns", "7 x 2", "7 x 1"}},
      {"entries_above_sizes",
       [](Plan const& p) { p.entries_above(0, index(5, 1), index(2, 1), vector(2)); },
       {"row_begin", "row 0", "count_above"}},
      {"sample_columns", [](Plan const& p) { p.sample(1, index(7, 3)); }, {"pairs", "7 x 3", "7 x 2"}},
      {"sample_elsewhere",
       [](Plan const& p) {
         p.sample(1, {indices.data(), 7, 2, 2, {DeviceType::cuda, 1}});
       },
       {"pairs", "cuda:1", "host"}},
  };
  return table;
}

class BadUses : public testing::TestWithParam<BadUse> {};
INSTANTIATE_TEST_SUITE_P(, BadUses, testing::ValuesIn(bad_uses()),
                         [](auto const& info) { return std::string(info.param.name); });

TEST_P(BadUses, of_a_plan_name_field_value_and_what_is_allowed) {
  Plan const plan = Call().run(Context::cpu());
  expect_error(ErrorCode::invalid_argument, GetParam().message, [&] { GetParam().call(plan); });
}

TEST(PlanOfAMatrix, has_neither_points_nor_maps) {
  Call call;
  call.matrix.emplace(call.cost.data(), 4, 3);
  Plan const plan = call.run(Context::cpu());
  EXPECT_EQ(plan.status(), Status::converged);
  std::vector<double> const in(8, 0.5);
  std::vector<double> out(8);
  MatrixView const points(in.data(), 4, 2);
  MutableMatrixView const map(out.data(), 4, 2);
  auto const expect_unsupported = [](std::function<void()> const& use) {
    expect_error(ErrorCode::unsupported, {"points", "cost matrix has none"}, use);
  };
  expect_unsupported([&] { plan.barycentric_projection(map); });
  expect_unsupported([&] { plan.map(points, map); });
  expect_unsupported([&] { plan.potential(points, MutableVectorView(out.data(), 4)); });
}

TEST(PlanWithLabels, has_no_maps_at_new_points) {
  Call call;
  call.add_labels();
  Plan const plan = call.run(Context::cpu());
  EXPECT_EQ(plan.status(), Status::converged);
  std::vector<double> out(8);
  MatrixView const points(call.x.data(), 4, 2);
  plan.barycentric_projection(MutableMatrixView(out.data(), 4, 2));
  auto const expect_unsupported = [](std::function<void()> const& use) {
    expect_error(ErrorCode::unsupported, {"points", "labels"}, use);
  };
  expect_unsupported([&] { plan.map(points, MutableMatrixView(out.data(), 4, 2)); });
  expect_unsupported([&] { plan.potential(points, MutableVectorView(out.data(), 4)); });
}

// The same checks stand in front of every backend.
class BadInputOnDevice : public BackendTest {};
MONGE_FOR_EACH_DEVICE(BadInputOnDevice);

TEST_P(BadInputOnDevice, is_found_and_leaves_the_context_usable) {
  Call call;
  call.options.precision = Precision::float64;
  call.x[5] = kNan;
  expect_error(ErrorCode::invalid_argument, {"x", "row 2", "column 1", "nan", "finite"}, [&] { call.run(context()); });
  call.x[5] = 1;
  EXPECT_EQ(call.run(context()).status(), Status::converged);

  // What only packing sees of labels and directions.
  Call labelled = call;
  labelled.add_labels();
  labelled.labels_y[1] = 3;
  expect_error(ErrorCode::invalid_argument, {"labels_y", "point 1 has label 3", "[0, 3)"},
               [&] { labelled.run(context()); });
  labelled.labels_y[1] = 2;
  labelled.x[6] = kInfinity;
  expect_error(ErrorCode::invalid_argument, {"x", "row 3, column 0 is inf"}, [&] { labelled.run(context()); });
  Call directed = call;
  directed.cost_function = CostFunction::cosine;
  expect_error(ErrorCode::invalid_argument, {"x", "row 0 has length 0"}, [&] { directed.run(context()); });
  directed.x[0] = kNan;
  expect_error(ErrorCode::invalid_argument, {"x", "row 0, column 0 is nan"}, [&] { directed.run(context()); });

  call.matrix.emplace(call.cost.data(), 4, 3);
  call.cost[7] = kNan;
  expect_error(ErrorCode::invalid_argument, {"cost", "row 2, column 1 is nan"}, [&] { call.run(context()); });
  call.cost[7] = 1;
  EXPECT_EQ(call.run(context()).status(), Status::converged);
}

}  // namespace
}  // namespace monge::oracle
