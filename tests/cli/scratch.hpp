// What the tests of the program share: a folder for one test, whole files, and the text of an error.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <monge/error.hpp>

namespace monge::cli {

class Scratch : public testing::Test {
 protected:
  Scratch() {
    testing::TestInfo const* const test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("monge-" + std::string(test->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Scratch() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path folder() const { return folder_; }
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::string file(std::string_view name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

inline std::string contents(std::filesystem::path const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The message of the Error that `call` throws; a failure of the test if it throws none.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  ADD_FAILURE() << "threw nothing";
  return {};
}

}  // namespace monge::cli
