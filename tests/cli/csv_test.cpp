#include "csv.hpp"

#include <cmath>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.hpp"

namespace monge::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> values(std::string_view text) {
  return std::get<std::vector<double>>(parse_csv(text, "x: x.csv").values);
}

std::string error_for(std::string_view text) {
  return message_of([&] { parse_csv(text, "x: x.csv"); });
}

TEST(Csv, EverySeparatorIsRead) {
  for (std::string_view const text :
       {"1,2\n3,4\n", "1;2\n3;4\n", "1\t2\n3\t4\n", "1 2\n3 4\n", "  1   2 \n\t3 \t 4", "1, 2\n 3 ,4", "1,2\r\n3,4\r\n",
        "\xef\xbb\xbf"
        "1,2\n3,4"}) {
    EXPECT_THAT(parse_csv(text, "x").shape, ElementsAre(2, 2)) << text;
    EXPECT_THAT(values(text), ElementsAre(1, 2, 3, 4)) << text;
  }
}

TEST(Csv, HeadersCommentsAndEmptyLinesAreSkipped) {
  EXPECT_THAT(values("# made by hand\n\nred, green\n1,2\n\n  # more\n3,4\n\n"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values("weight\n1\n2\n"), ElementsAre(1, 2));
  EXPECT_THAT(parse_csv("1\n2\n3", "x").shape, ElementsAre(3, 1));
}

TEST(Csv, NumbersAreReadExactly) {
  EXPECT_THAT(values("0.1,-1e-3,+2.5e+1,.5,4."), ElementsAre(0.1, -1e-3, 25, 0.5, 4));
  EXPECT_THAT(values("1.7976931348623157e308,4.9e-324,1e-999"), ElementsAre(1.7976931348623157e308, 4.9e-324, 0));
  auto const special = values("1,nan,inf,-Infinity");
  EXPECT_TRUE(std::isnan(special[1]));
  EXPECT_EQ(special[2], HUGE_VAL);
  EXPECT_EQ(special[3], -HUGE_VAL);
}

TEST(Csv, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_for("1,2\n3,abc\n"), "x: x.csv: line 2, column 2: 'abc' is no number");
  EXPECT_EQ(error_for("a,b\n1,\n"), "x: x.csv: line 2, column 2: '' is empty");
  EXPECT_EQ(error_for("1,2\n3,4,\n"), "x: x.csv: line 2 has 3 columns; must have 2, like the lines before");
  EXPECT_EQ(error_for("1,2\n3\n"), "x: x.csv: line 2 has 1 columns; must have 2, like the lines before");
  EXPECT_EQ(error_for("1,1e999"), "x: x.csv: line 1, column 2: '1e999' is too large for float64");
  EXPECT_EQ(error_for("1,2x"), "x: x.csv: line 1, column 2: '2x' is no number");
  EXPECT_EQ(error_for("1,+-2"), "x: x.csv: line 1, column 2: '+-2' is no number");
  EXPECT_EQ(error_for("# only words\nred,green\n"), "x: x.csv: holds no numbers; must have one row a line");
  EXPECT_THAT(error_for(""), HasSubstr("holds no numbers"));
  EXPECT_THAT(error_for("a\nb\n"), HasSubstr("line 2, column 1: 'b' is no number"));
  EXPECT_EQ(error_for(std::string("1,\x01\n")), "x: x.csv: line 1, column 2: '?' is no number");
}

TEST(Csv, ReadsOrRefusesEveryFileOfTheFuzzingCorpus) {
  for (auto const& entry : std::filesystem::directory_iterator(MONGE_CORPUS "/csv")) {
    try {
      parse_csv(contents(entry.path()), entry.path().string());
    } catch (Error const&) {
    }
  }
}

}  // namespace
}  // namespace monge::cli
