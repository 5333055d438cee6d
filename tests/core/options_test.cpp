// Names of enumerations, bounds of numbers, and the lists of fields that hold both.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "core/numbers.hpp"

namespace monge {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Choice>
class Names : public testing::Test {};
using Enumerations = testing::Types<DataType, ErrorCode, Precision, Schedule, Status, ProjectionOrder, ProjectionStart,
                                    EpsilonMode, ProjectionGradient, ProjectionPreset>;
TYPED_TEST_SUITE(Names, Enumerations);

TYPED_TEST(Names, belong_to_one_value_each) {
  std::set<std::string_view> seen;
  int value = 0;
  for (auto const& [choice, text] : kNames<TypeParam>) {
    EXPECT_EQ(static_cast<int>(choice), value++) << text;
    EXPECT_TRUE(seen.insert(text).second) << text;
    EXPECT_EQ(name(choice), text);
    EXPECT_EQ(from_name<TypeParam>(text), choice);
    EXPECT_TRUE(OneOf<TypeParam>().contains(choice)) << text;
  }
  TypeParam const beyond{value};
  EXPECT_EQ(name(beyond), "unknown");
  EXPECT_FALSE(OneOf<TypeParam>().contains(beyond));
  for (auto const* text : {"", "unknown", "Float32"}) EXPECT_FALSE(from_name<TypeParam>(text).has_value()) << text;
}

TEST(OneOf, lists_its_names) {
  EXPECT_EQ(OneOf<bool>().text(), "true or false");
  EXPECT_EQ(OneOf<Precision>().text(), "auto, float32, tf32 or float64");
  EXPECT_EQ(names_text<Schedule>(), "overrelaxed, alternating, symmetric");
}

TEST(Bounds, contain_what_their_text_says) {
  struct Row {
    Bounds bounds;
    char const* text;
    std::vector<double> inside, outside;
  };
  Row const table[] = {
      {kFinite, "finite", {-1e300, 0, 1e300}, {-kInfinity, kInfinity}},
      {kPositive, "> 0", {5e-324, 1e300}, {-1, -0.0, 0, kInfinity}},
      {kPositiveOrInfinite, "> 0", {5e-324, 1e300, kInfinity}, {-1, -0.0, 0}},
      {kNotNegative, ">= 0", {0, -0.0, 1e300}, {-5e-324, kInfinity}},
      {at_least(1), ">= 1", {1, 2e9, kInfinity}, {0, -kInfinity}},
      {{.least = 0, .most = 1, .most_open = false}, "in (0, 1]", {1e-300, 1}, {0, 1.0000001}},
      {{.least = -2, .most = 0.5, .least_open = false}, "in [-2, 0.5)", {-2, 0}, {0.5, -3}},
      {{.most = 3}, "< 3", {-1e300, 2.9}, {3, -kInfinity}},
      {{.most = 3, .most_open = false}, "<= 3", {3}, {3.1, -kInfinity}},
  };
  for (auto const& [bounds, text, inside, outside] : table) {
    EXPECT_EQ(bounds.text(), text);
    for (double const value : inside) EXPECT_TRUE(bounds.contains(value)) << text << " and " << value;
    for (double const value : outside) EXPECT_FALSE(bounds.contains(value)) << text << " and " << value;
    EXPECT_FALSE(bounds.contains(kNan)) << text;
  }
}

TEST(Bounds, say_in_full_that_infinity_is_none_of_them) {
  EXPECT_EQ(kPositive.text_in_full(), "finite and > 0");
  EXPECT_EQ((Bounds{.most = 3}).text_in_full(), "finite and < 3");
  for (Bounds const bounds : {kFinite, at_least(1), Bounds{.least = 0, .most = 1}})
    EXPECT_EQ(bounds.text_in_full(), bounds.text());
}

/// The names of the fields, each of which must have a text for people and allow its default.
struct Fields {
  std::vector<std::string> names;
  template <class Constraint, class Value>
  void operator()(Field<Constraint> const& field, Value value) {
    names.emplace_back(field.name);
    EXPECT_NE(std::string(field.description), "") << field.name;
    EXPECT_NE(field.constraint.text(), "") << field.name;
    EXPECT_TRUE(field.constraint.contains(value)) << field.name;
  }
};

TEST(Fields, of_a_solve_are_all_visited) {
  Fields fields;
  SolveOptions const options{.eps = 1};
  visit_solve_options(options, fields);
  EXPECT_EQ(fields.names, (std::vector<std::string>{"eps", "eps_relative", "method", "tolerance", "criterion",
                                                    "iterations", "schedule", "penalty_a", "penalty_b", "annealing",
                                                    "precision", "check_every", "certificate", "cache_bytes",
                                                    "splr_density", "splr_shift", "splr_reuse", "splr_candidates"}));
}

TEST(Fields, of_a_projection_are_all_visited) {
  std::vector<std::string> expected{"order",      "start",         "epsilon_mode", "epsilon",
                                    "iterations", "tolerance",     "temperature",  "log_domain",
                                    "dustbin",    "dustbin_score", "row_sum"};
  ProjectionOptions const options;
  Fields forward, all;
  visit_forward_options(options, forward);
  EXPECT_EQ(forward.names, expected);
  visit_projection_options(options, all);
  expected.insert(expected.end(), {"gradient", "implicit_tolerance"});
  EXPECT_EQ(all.names, expected);
}

}  // namespace
}  // namespace monge
