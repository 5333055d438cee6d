#include "report_json.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "option_text.hpp"

namespace monge::cli {
namespace {

TEST(ReportJson, NumbersThatAreNotFiniteAreNull) {
  Report report;
  report.gap = std::numeric_limits<double>::quiet_NaN();
  report.history.push_back(
      {10, 0.5, std::numeric_limits<double>::infinity(), 1, StepKind::rejected, Precision::float32, 0, 0});
  auto const json = nlohmann::json::parse(json_text(report_json(SolveRun{}, SolveOptions{}, report)));
  EXPECT_TRUE(json["gap"].is_null());
  EXPECT_TRUE(json["history"][0]["marginal_error"].is_null());
  EXPECT_EQ(json["history"][0]["iteration"], 10);
  EXPECT_EQ(json["history"][0]["kind"], "rejected");
}

TEST(ReportJson, FileNamesNeedNotBeUtf8) {
  SolveRun run;
  run.files["x"] = "\xff.npy";
  EXPECT_NO_THROW(nlohmann::json::parse(json_text(report_json(run, SolveOptions{}, Report{}))));
}

TEST(ReportJson, HasEveryOptionOfTheList) {
  SolveOptions const options{.eps = 2};
  SolveRun run;
  run.entries.top_k = 3;
  auto const json = report_json(run, options, Report{});
  auto const expect = [&](auto const& field, auto const& value) {
    ASSERT_TRUE(json["options"].contains(field.name)) << field.name;
    if (field.name != std::string_view("eps_relative")) {
      EXPECT_EQ(json["options"][field.name], to_json(value)) << field.name;
    }
  };
  visit_solve_options(options, expect);
  EXPECT_TRUE(json["options"]["eps_relative"].is_null()) << "eps takes its place";
  EXPECT_TRUE(report_json(run, SolveOptions{}, Report{})["options"]["eps"].is_null());
  visit_entry_options(run.entries, expect);
  EXPECT_EQ(json["options"]["top_k"], 3);
  EXPECT_TRUE(json["options"]["sample"].is_null());
}

TEST(ReportJson, HasEveryOptionOfAProjection) {
  ProjectionOptions const options = projection_preset("deepseek");
  auto const json = report_json(ProjectRun{}, options);
  visit_forward_options(options, [&](auto const& field, auto const& value) {
    ASSERT_TRUE(json["options"].contains(field.name)) << field.name;
    EXPECT_EQ(json["options"][field.name], to_json(value)) << field.name;
  });
}

TEST(OptionText, NamesParse) {
  auto schedule = Schedule::symmetric;
  EXPECT_TRUE(parse("alternating", schedule));
  EXPECT_EQ(schedule, Schedule::alternating);
  EXPECT_FALSE(parse("Symmetric", schedule));
  EXPECT_EQ(schedule, Schedule::alternating);
}

TEST(OptionText, AnOptionWithoutADefaultHasNoValue) {
  std::optional<int> whole;
  EXPECT_EQ(option_text(whole), "");
  EXPECT_FALSE(parse("x", whole));
  EXPECT_FALSE(whole);
  EXPECT_TRUE(parse("-7", whole));
  EXPECT_EQ(whole, -7);
  EXPECT_EQ(option_text(whole), "-7");
  std::optional<std::uint64_t> seed;
  EXPECT_FALSE(parse("-1", seed));
  EXPECT_TRUE(parse("18446744073709551615", seed));
  EXPECT_EQ(seed, 18446744073709551615u);
}

TEST(OptionText, OnlyWholeValuesParse) {
  double real = 7;
  int whole = 7;
  bool truth = true;
  for (auto const text : {"", "x", "1x", " 1", "1 "}) {
    EXPECT_FALSE(parse(text, real)) << text;
    EXPECT_FALSE(parse(text, whole)) << text;
    EXPECT_FALSE(parse(text, truth)) << text;
  }
  EXPECT_FALSE(parse("1.5", whole));
  EXPECT_FALSE(parse("99999999999", whole));
  EXPECT_FALSE(parse("1e999", real));
  EXPECT_EQ(real, 7);
  EXPECT_EQ(whole, 7);
  EXPECT_TRUE(parse("1e-3", real));
  EXPECT_EQ(real, 1e-3);
}

}  // namespace
}  // namespace monge::cli
