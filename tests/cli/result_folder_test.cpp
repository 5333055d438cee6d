#include "result_folder.hpp"

#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "array_file.hpp"
#include "scratch.hpp"

namespace monge::cli {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ResultFolderTest : public Scratch {
 protected:
  std::set<std::string> entries(fs::path const& of) {
    std::set<std::string> names;
    for (auto const& entry : fs::directory_iterator(of)) names.insert(entry.path().filename().string());
    return names;
  }
};

TEST_F(ResultFolderTest, CheckingLeavesNoTrace) {
  ResultFolder const result(path("new/deep/"));
  EXPECT_THAT(entries(folder()), IsEmpty());
}

TEST_F(ResultFolderTest, ANewFolderAppearsWithItsFiles) {
  ResultFolder(path("new/deep/")).fill([](fs::path const& into) { write_text(into / "a", "1"); });
  EXPECT_THAT(entries(folder()), ElementsAre("new"));
  EXPECT_THAT(entries(folder() / "new"), ElementsAre("deep"));
  EXPECT_THAT(entries(folder() / "new" / "deep"), ElementsAre("a"));
}

TEST_F(ResultFolderTest, AnOldFolderKeepsItsOtherFiles) {
  file("a", "old");
  file("b", "old");
  ResultFolder(folder()).fill([](fs::path const& into) { write_text(into / "a", "new"); });
  EXPECT_THAT(entries(folder()), ElementsAre("a", "b"));
  EXPECT_EQ(contents(path("a")), "new");
  EXPECT_EQ(contents(path("b")), "old");
}

TEST_F(ResultFolderTest, AFailureLeavesWhatWasThere) {
  file("a", "old");
  auto const fail = [](fs::path const& into) {
    write_text(into / "a", "new");
    throw std::runtime_error("disk full");
  };
  EXPECT_THROW(ResultFolder(folder()).fill(fail), std::runtime_error);
  EXPECT_THROW(ResultFolder(path("new")).fill(fail), std::runtime_error);
  EXPECT_THAT(entries(folder()), ElementsAre("a"));
  EXPECT_EQ(contents(path("a")), "old");
}

TEST_F(ResultFolderTest, PlacesThatCannotBeWrittenAreRefused) {
  file("a", "old");
  fs::create_symlink("nowhere", path("link"));
  EXPECT_THAT(message_of([&] { ResultFolder{path("a")}; }), HasSubstr("is a file; must be a folder"));
  EXPECT_THAT(message_of([&] { ResultFolder{path("a/below")}; }), HasSubstr("is a file; must be a folder"));
  EXPECT_THAT(message_of([&] { ResultFolder{path("link")}; }), HasSubstr("is a link to nowhere"));
  EXPECT_THAT(message_of([&] { ResultFolder{""}; }), HasSubstr("is an empty path"));
  EXPECT_THAT(message_of([&] { ResultFolder{"/proc/monge"}; }), HasSubstr("out: /proc/monge: "));
}

}  // namespace
}  // namespace monge::cli
