#include "report_json.hpp"

#include <limits>

#include <gtest/gtest.h>

#include "option_text.hpp"

namespace monge::cli {
namespace {

TEST(ReportJson, NumbersThatAreNotFiniteAreNull) {
  Report report;
  report.gap = std::numeric_limits<double>::quiet_NaN();
  report.history.push_back({10, 0.5, std::numeric_limits<double>::infinity(), 1});
  auto const json = nlohmann::json::parse(json_text(report_json(SolveRun{}, SolveOptions{}, report)));
  EXPECT_TRUE(json["gap"].is_null());
  EXPECT_TRUE(json["history"][0]["marginal_error"].is_null());
  EXPECT_EQ(json["history"][0]["iteration"], 10);
}

TEST(ReportJson, FileNamesNeedNotBeUtf8) {
  SolveRun run;
  run.files["x"] = "\xff.npy";
  EXPECT_NO_THROW(nlohmann::json::parse(json_text(report_json(run, SolveOptions{}, Report{}))));
}

TEST(ReportJson, HasEveryOptionOfTheList) {
  SolveOptions const options;
  auto const json = report_json(SolveRun{}, options, Report{});
  visit_solve_options(options, [&](char const* option, auto const& value, char const*, char const*) {
    ASSERT_TRUE(json["options"].contains(option)) << option;
    EXPECT_EQ(json["options"][option], to_json(value)) << option;
  });
}

TEST(OptionText, NamesRoundTrip) {
  for (auto const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    Schedule parsed{};
    EXPECT_TRUE(parse(name(schedule), parsed));
    EXPECT_EQ(parsed, schedule);
  }
  for (auto const precision : {Precision::float32, Precision::tf32, Precision::float64}) {
    Precision parsed{};
    EXPECT_TRUE(parse(name(precision), parsed));
    EXPECT_EQ(parsed, precision);
  }
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
