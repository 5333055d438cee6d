// `monge project`, run as a user would.
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include <monge/projection.hpp>

#include "program.hpp"

namespace monge::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ProjectProgram : public Program {
 protected:
  static std::vector<float> normal_numbers(std::int64_t count) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random);
    return values;
  }

  /// logits.npy, of standard normal numbers.
  std::vector<float> logits(std::vector<std::int64_t> const& shape) const {
    std::int64_t count = 1;
    for (std::int64_t const entries : shape) count *= entries;
    std::vector<float> const values = normal_numbers(count);
    write_array(path("logits.npy"), {shape, values});
    return values;
  }

  /// A .npy file of two complex numbers, as NumPy writes it.
  static std::string numpy_complex() {
    std::string header = "{'descr': '<c8', 'fortran_order': False, 'shape': (2, 1), }";
    header.resize(117, ' ');
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + std::string(16, '\0');
  }

  Outcome project(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"project", path("logits.npy"), "--out", path("result.npy"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json report(std::vector<std::string> more, int code = 0) const {
    more.push_back("--json");
    Outcome const outcome = project(more);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_THAT(outcome.err, IsEmpty());
    return json::parse(outcome.out);
  }
  Array result() const { return read_array("result", path("result.npy")); }
  std::vector<float> floats() const { return std::get<std::vector<float>>(result().values); }
  void expect_refused(Outcome const& outcome, std::string const& what) const {
    Program::expect_refused(outcome, what);
    EXPECT_FALSE(std::filesystem::exists(path("result.npy")));
  }
};

TEST_F(ProjectProgram, EachPresetIsThatOfTheLibrary) {
  std::vector<float> const x = logits({7, 4, 4});
  for (auto const& [value, preset] : kNames<ProjectionPreset>) {
    json const report = this->report({"--preset", std::string(preset), "--threads", "1"});
    ProjectionOptions const options = projection_preset(preset);
    int const n = 4 + options.dustbin;
    EXPECT_THAT(result().shape, ElementsAre(7, n, n)) << preset;
    std::vector<float> expected(static_cast<std::size_t>(7 * n * n));
    monge::project(Context::cpu(1), {x.data(), 7, 4, 4}, {expected.data(), 7, n, n}, options);
    EXPECT_EQ(floats(), expected) << preset;
    EXPECT_EQ(report["status"], "completed");
    EXPECT_EQ(report["options"]["preset"], std::string(preset));
    EXPECT_EQ(report["options"]["iterations"], options.iterations);
    EXPECT_EQ(report["options"]["epsilon"], options.epsilon);
  }
}

TEST_F(ProjectProgram, TheReportHasWhatItPromises) {
  logits({6, 3, 5});
  json const report = this->report({"--iterations", "2", "--preset", "blog"});
  for (auto const key : {"status", "row_error", "column_error", "seconds", "problem", "options", "device",
                         "device_name", "instruction_set", "units", "versions"})
    EXPECT_TRUE(report.contains(key)) << key;
  for (auto const key : {"monge", "compiler", "highway", "openmp"})
    EXPECT_FALSE(report["versions"][key].get<std::string>().empty()) << key;
  EXPECT_EQ(report["problem"]["batch"], 6);
  EXPECT_EQ(report["problem"]["rows"], 3);
  EXPECT_EQ(report["problem"]["columns"], 5);
  EXPECT_EQ(report["problem"]["files"]["logits"], path("logits.npy"));
  // The largest relative error of a sum, here from the file: rows sum to 1, columns to 3 / 5.
  std::vector<float> const p = floats();
  double rows = 0, columns = 0;
  for (std::size_t t = 0; t < 6; ++t) {
    for (std::size_t i = 0; i < 3; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < 5; ++j) sum += p[15 * t + 5 * i + j];
      rows = std::max(rows, std::abs(sum - 1));
    }
    for (std::size_t j = 0; j < 5; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < 3; ++i) sum += p[15 * t + 5 * i + j];
      columns = std::max(columns, std::abs(sum / 0.6 - 1));
    }
  }
  EXPECT_GT(rows, 1e-4) << "two iterations are meant not to suffice";
  EXPECT_NEAR(report["row_error"], rows, 1e-7);
  EXPECT_NEAR(report["column_error"], columns, 1e-7);
}

TEST_F(ProjectProgram, OnlyWhatIsGivenChangesThePreset) {
  logits({2, 4, 4});
  json const options = report({"--iterations", "3", "--temperature", "0.5", "--preset", "deepseek"})["options"];
  EXPECT_EQ(options["iterations"], 3) << "an option before --preset counts too";
  EXPECT_EQ(options["temperature"], 0.5);
  EXPECT_EQ(options["start"], "softmax");
  EXPECT_EQ(options["epsilon"], 1e-6);
  EXPECT_EQ(report({})["options"]["order"], "columns_first") << "mhc_paper by itself";
}

TEST_F(ProjectProgram, EveryOptionReachesTheLibrary) {
  logits({2, 4, 4});
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> const given{
      {"order", "rows_first"}, {"start", "exp_shifted"}, {"epsilon_mode", "clamp"}, {"epsilon", "0.125"},
      {"iterations", "4"},     {"tolerance", "0.75"},    {"temperature", "2"},      {"log_domain", "false"},
      {"dustbin", "true"},     {"dustbin_score", "0.5"}, {"row_sum", "3"}};
  for (auto const& [option, value] : given) {
    std::string flag = "--" + option;
    std::replace(flag.begin(), flag.end(), '_', '-');
    arguments.insert(arguments.end(), {flag, value});
  }
  json const options = report(arguments)["options"];
  std::size_t seen = 0;
  ProjectionOptions const all;
  visit_forward_options(all, [&](auto const& field, auto const&) {
    std::string const option = field.name;
    auto const found = std::find_if(given.begin(), given.end(), [&](auto const& pair) { return pair.first == option; });
    ASSERT_NE(found, given.end()) << option << " is an option that this test does not know";
    EXPECT_EQ(options[option].is_string() ? options[option].get<std::string>() : options[option].dump(),
              options[option].is_number_float() && found->second.find('.') == std::string::npos ? found->second + ".0"
                                                                                                : found->second);
    ++seen;
  });
  EXPECT_EQ(seen, given.size());
}

TEST_F(ProjectProgram, OneMatrixStacksAndBatchesAreTheSame) {
  std::vector<float> const x = logits({3, 2, 4});
  ASSERT_EQ(project({}).code, 0);
  std::vector<float> const batch = floats();
  write_array(path("logits.npy"), {{6, 4}, x});
  ASSERT_EQ(project({"--rows", "2"}).code, 0);
  EXPECT_THAT(result().shape, ElementsAre(6, 4));
  EXPECT_EQ(floats(), batch);
  write_array(path("logits.npy"), {{2, 4}, std::vector<float>(x.begin(), x.begin() + 8)});
  ASSERT_EQ(project({}).code, 0);
  EXPECT_THAT(result().shape, ElementsAre(2, 4));
  EXPECT_EQ(floats(), std::vector<float>(batch.begin(), batch.begin() + 8));
  write_array(path("logits.npy"), {{6, 4}, std::vector<double>(x.begin(), x.end())});
  ASSERT_EQ(project({"--rows", "2", "--preset", "superglue"}).code, 0);
  EXPECT_THAT(result().shape, ElementsAre(9, 5));
  write_array(path("logits.npy"), {{0, 4, 4}, std::vector<float>{}});
  ASSERT_EQ(project({}).code, 0);
  EXPECT_THAT(result().shape, ElementsAre(0, 4, 4));
}

TEST_F(ProjectProgram, Float16IsReadAndFloat32Written) {
  std::vector<Half> const halves(32, Half{0x3c00});
  write_array(path("logits.npy"), {{2, 4, 4}, halves});
  ASSERT_EQ(project({}).code, 0);
  for (float const p : floats()) EXPECT_FLOAT_EQ(p, 0.25f);
  std::filesystem::remove(path("result.npy"));
  write_array(path("logits.npy"), {{1, 1, 2}, std::vector<Half>{Half{0}, Half{0x7e00}}});
  expect_refused(project({}), "logits: entry [0, 0, 1] is nan");
}

TEST_F(ProjectProgram, MarginalsAreObeyedAndReported) {
  logits({5, 3, 2});
  file("a.csv", "1\n0\n2\n");
  file("b.csv", "0.5\n2.5\n");
  json const report =
      this->report({"--row-marginal", path("a.csv"), "--column-marginal", path("b.csv"), "--iterations", "200"});
  EXPECT_EQ(report["problem"]["files"]["row_marginal"], path("a.csv"));
  EXPECT_LE(report["row_error"].get<double>(), 1e-6) << "with a target of zero";
  EXPECT_LE(report["column_error"].get<double>(), 1e-6);
  std::vector<float> const p = floats();
  for (std::size_t t = 0; t < 5; ++t) {
    EXPECT_EQ(p[6 * t + 2], 0);
    EXPECT_NEAR(p[6 * t] + p[6 * t + 1], 1, 1e-6);
    EXPECT_NEAR(p[6 * t] + p[6 * t + 2] + p[6 * t + 4], 0.5, 1e-6);
  }
  std::filesystem::remove(path("result.npy"));
  expect_refused(project({"--row-marginal", path("b.csv")}), "row_marginal: has 2 entries; must have 3");
}

TEST_F(ProjectProgram, EndingShortIsCode3WithResults) {
  logits({40, 4, 4});
  json const shorted = report({"--tolerance", "1e-6", "--iterations", "2"}, 3);
  EXPECT_EQ(shorted["status"], "iteration_limit");
  EXPECT_THAT(result().shape, ElementsAre(40, 4, 4));
  for (std::string const preset : {"mhc_paper", "gumbel_sinkhorn"}) {
    json const converged = report({"--tolerance", "1e-3", "--iterations", "500", "--preset", preset});
    EXPECT_EQ(converged["status"], "converged") << preset;
    EXPECT_LE(std::max(converged["row_error"].get<double>(), converged["column_error"].get<double>()), 1.001e-3);
  }
}

TEST_F(ProjectProgram, AMaskedRowStaysEmptyAndIsReported) {
  float const inf = std::numeric_limits<float>::infinity();
  write_array(path("logits.npy"), {{2, 2}, std::vector<float>{-inf, -inf, 0, 1}});
  json const report = this->report({"--preset", "gumbel_sinkhorn"});
  EXPECT_EQ(report["row_error"], 1);
  EXPECT_EQ(floats()[0], 0);
  EXPECT_EQ(floats()[1], 0);
}

TEST_F(ProjectProgram, WideLogitsOutsideTheLogDomainAreNoted) {
  float const inf = std::numeric_limits<float>::infinity();
  write_array(path("logits.npy"), {{2, 2, 2}, std::vector<float>{0, 1, 1000, 1000, 0, 200, -inf, 100}});
  EXPECT_THAT(report({})["message"].get<std::string>(), HasSubstr("up to 1e+03 apart; beyond 80"));
  EXPECT_THAT(project({}).out, HasSubstr("note            logits of one matrix"));
  EXPECT_EQ(report({"--log-domain", "true"})["message"], "");
  EXPECT_EQ(report({"--temperature", "20"})["message"], "");
}

TEST_F(ProjectProgram, QuietPrintsNothingAndTheSummaryNamesTheErrors) {
  logits({2, 4, 4});
  Outcome const quiet = project({"--quiet"});
  EXPECT_EQ(quiet.code, 0);
  EXPECT_THAT(quiet.out + quiet.err, IsEmpty());
  Outcome const told = project({});
  EXPECT_THAT(told.out, HasSubstr("row error"));
  EXPECT_THAT(told.out, HasSubstr("2 matrices of 4 x 4, preset mhc_paper"));
}

TEST_F(ProjectProgram, WrongUseIsCode2) {
  logits({3, 4, 4});
  expect_refused(run({"project"}), "required");
  expect_refused(run({"project", path("logits.npy")}), "--out is required");
  expect_refused(project({"--preset", "mhc"}), "preset: is 'mhc'; must be one of mhc_paper, deepseek");
  expect_refused(project({"--order", "diagonal"}), "order: is 'diagonal'; must be rows_first or columns_first");
  expect_refused(project({"--temperature", "-1"}), "temperature: is -1; must be finite and > 0");
  expect_refused(project({"--iterations", "0"}), "iterations: is 0; must be >= 1");
  expect_refused(project({"--iterations", "two"}),
                 "iterations: is 'two'; must be a whole number up to 2147483647, >= 1; see monge project --help");
  expect_refused(project({"--iterations", "2.5"}), "iterations: is '2.5'; must be a whole number");
  expect_refused(project({"--iterations", "-1"}), "iterations: is -1; must be >= 1");
  expect_refused(project({"--temperature", "hot"}), "temperature: is 'hot'; must be a number, > 0");
  expect_refused(project({"--dustbin", "yes"}), "dustbin: is 'yes'; must be true or false");
  expect_refused(project({"--gradient", "implicit"}), "--gradient");
  expect_refused(project({"--epsilon", "1e-6"}),
                 "epsilon: is 1e-06 with epsilon_mode none; must be 0, or have a place");
  expect_refused(project({"--dustbin-score", "2"}), "dustbin_score: is 2; is for a dustbin, set --dustbin true");
  expect_refused(project({"--row-sum", "2", "--row-marginal", path("a.npy")}),
                 "row_sum: is 2; must not be given with row_marginal");
  expect_refused(project({"--tolerance", "-1"}), "tolerance: is -1");
  expect_refused(project({"--epsilon", "nan"}), "epsilon: is nan");
  expect_refused(project({"--epsilon-mode", "clamp", "--epsilon", "1", "--preset", "gumbel_sinkhorn"}),
                 "epsilon_mode: is clamp; must be none");
  expect_refused(project({"--rows", "2"}), "rows: is 2; is for 2-D logits, these have shape 3 x 4 x 4");
  expect_refused(project({"--threads", "-1"}), "threads: is -1");
  expect_refused(run({"project", path("logits.npy"), "--out", path("result.npy"), "--device", "gpu"}),
                 "device: is 'gpu'; must be auto, cpu, cuda, cuda:0, cuda:0,1 or cuda:all");
}

TEST_F(ProjectProgram, BadInputIsCode2) {
  logits({6, 4});
  auto const with = [&](std::string const& input, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"project", input, "--out", path("result.npy"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  expect_refused(with(path("none.npy")), "logits: " + path("none.npy") + ": cannot be opened: No such file");
  expect_refused(project({"--rows", "4"}), "rows: is 4; must be positive and divide the 6 rows");
  expect_refused(project({"--rows", "-2"}), "rows: is -2");
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  write_array(path("bad.npy"), {{2, 1, 2}, std::vector<float>{0, 1, 2, nan}});
  expect_refused(with(path("bad.npy")), "logits: entry [1, 0, 1] is nan; must be a float32 number, or -inf");
  write_array(path("bad.npy"), {{1, 2}, std::vector<float>{0, inf}});
  expect_refused(with(path("bad.npy")), "logits: entry [0, 1] is inf");
  write_array(path("bad.npy"), {{1, 2}, std::vector<double>{0, 1e300}});
  expect_refused(with(path("bad.npy")), "logits: entry [0, 1] is 1e+300");
  write_array(path("bad.npy"), {{1, 2}, std::vector<float>{-1, 1}});
  expect_refused(with(path("bad.npy"), {"--start", "positive"}), "logits: entry [0, 0] is -1; must be a float32");
  write_array(path("bad.npy"), {{4}, std::vector<float>{1, 2, 3, 4}});
  expect_refused(with(path("bad.npy")), "logits: has shape 4; must be 2-D or 3-D");
  write_array(path("bad.npy"), {{1, 2050}, std::vector<float>(2050)});
  expect_refused(with(path("bad.npy")), "logits: has shape 1 x 2050; a matrix must be at most 2049 x 2049");
  write_array(path("bad.npy"), {{2051, 1}, std::vector<float>(2051)});
  expect_refused(with(path("bad.npy")), "; of a stack of them, rows says how many one has");
  expect_refused(with(path("bad.npy"), {"--rows", "2051"}), "logits: is 2051 x 1; must be at most 2049 x 2049");
  write_array(path("bad.npy"), {{1, 2049, 1}, std::vector<float>(2049)});
  expect_refused(with(path("bad.npy"), {"--preset", "superglue"}), "logits: is 2049 x 1 and a dustbin; must be");
  file("bad.npy", numpy_complex());
  expect_refused(with(path("bad.npy")),
                 "has dtype '<c8'; must be float32 ('<f4'), float64 ('<f8'), whole numbers or bool, which become "
                 "float64; logits of project also float16");
  write_array(path("bad.npy"), {{3, 0, 4}, std::vector<float>{}});
  expect_refused(with(path("bad.npy")), "logits: is 0 x 4; must be at least 1 x 1");
  expect_refused(with(file("x.txt.gz", "")), "has the extension '.gz'");
  expect_refused(project({"--row-marginal", path("none.npy")}), "row_marginal: " + path("none.npy"));
  write_array(path("cube.npy"), {{2, 3, 1}, std::vector<float>(6, 1.0f)});
  expect_refused(project({"--row-marginal", path("cube.npy")}), "row_marginal: has shape 2 x 3 x 1; must be 1-D");
  file("a.csv", "1\n1\n1\n1\n1\n-1\n");
  expect_refused(project({"--row-marginal", path("a.csv")}), "row_marginal: entry 5 is -1");
  file("b.csv", "1\n1\n1\n1\n");
  expect_refused(project({"--column-marginal", path("b.csv")}), "column_marginal: the total is 4; must equal");
}

TEST_F(ProjectProgram, ResultsGoOnlyWhereTheyCan) {
  logits({4, 4});
  auto const to = [&](std::string const& out) {
    return run({"project", path("logits.npy"), "--device", "cpu", "--out", out});
  };
  expect_refused(to(path("result.csv")), "must be a file with the extension .npy");
  expect_refused(to("/proc/monge/p.npy"), "out: ");
  std::filesystem::create_directory(path("folder.npy"));
  expect_refused(to(path("folder.npy")), "is a folder; must be a file");
  EXPECT_EQ(to(path("new/deep/p.npy")).code, 0);
  EXPECT_EQ(to(path("new/deep/p.npy")).code, 0) << "and again, over the old one";
  EXPECT_EQ(to(path("logits.npy")).code, 0) << "and over its own input";
}

TEST_F(ProjectProgram, CloudsAreNotThreeDimensional) {
  logits({3, 4, 4});
  expect_refused(run({"solve", path("logits.npy"), path("logits.npy"), "--eps", "1", "--out", path("result")}),
                 "x: has shape 3 x 4 x 4; must be 1-D or 2-D");
  write_array(path("x.npy"), {{4, 2}, std::vector<Half>(8)});
  expect_refused(run({"solve", path("x.npy"), path("x.npy"), "--eps", "1", "--out", path("result")}),
                 "x: is float16; must be float32 or float64");
}

TEST_F(ProjectProgram, CtrlCLeavesAtOnce) {
  ASSERT_EQ(mkfifo(path("logits.csv").c_str(), 0600), 0);  // which nobody writes to
  pid_t const pid = start({"project", path("logits.csv"), "--out", path("result.npy"), "--device", "cpu"});
  while (!catches_interrupt(pid)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(pid, SIGINT);
  Outcome const outcome = finish(pid);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_EQ(outcome.err, "monge: interrupted; nothing was written\n");
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(path("result.npy")));
  expect_nothing_written();
}

}  // namespace
}  // namespace monge::cli
