// The program run as a user would: the fixture of its tests.
#pragma once
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "array_file.hpp"
#include "scratch.hpp"

extern char** environ;

namespace monge::cli {

struct Outcome {
  int code;
  std::string out, err;
};

/// A terminal for a program's standard error.
class Terminal {
 public:
  Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_TRUE(master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0);
  }
  ~Terminal() { close(master_); }
  Terminal(Terminal const&) = delete;
  Terminal& operator=(Terminal const&) = delete;

  std::string path() const { return ptsname(master_); }
  /// Until it shows the text; fails if the program ends before.
  void wait_for(std::string_view text) {
    while (shown_.find(text) == std::string::npos) ASSERT_TRUE(read_some()) << shown_;
  }
  /// All that was shown until the program ended.
  std::string const& shown() {
    while (read_some()) {
    }
    return shown_;
  }

 private:
  bool read_some() {
    char piece[256];
    ssize_t const size = read(master_, piece, sizeof(piece));
    if (size > 0) shown_.append(piece, static_cast<std::size_t>(size));
    return size > 0;
  }

  int master_;
  std::string shown_;
};

class Program : public Scratch {
 protected:
  std::string points(std::string_view name, std::int64_t n, std::int64_t d, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<double> values(n * d);
    for (double& value : values) value = static_cast<double>(random()) / 4294967296.0;
    write_array(path(name), {{n, d}, values});
    return path(name);
  }

  pid_t start(std::vector<std::string> arguments, Terminal const* terminal = nullptr) const {
    arguments.insert(arguments.begin(), MONGE_PROGRAM);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, path("stdout").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    std::string const err = terminal ? terminal->path() : path("stderr");
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY, 0600);
    setenv("TERM", "xterm", 1);  // of a terminal that can erase lines
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, MONGE_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  static bool catches_interrupt(pid_t pid) {
    std::string const status = contents("/proc/" + std::to_string(pid) + "/status");
    std::size_t const caught = status.find("SigCgt:");
    return caught != std::string::npos && (std::stoull(status.substr(caught + 7), nullptr, 16) >> (SIGINT - 1) & 1);
  }

  Outcome finish(pid_t pid) const {
    int status = 0;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), contents(path("stdout")),
            contents(path("stderr"))};
  }

  Outcome run(std::vector<std::string> const& arguments) const { return finish(start(arguments)); }

  /// Exit code 2, one line that says `what`, no output, nothing written.
  void expect_refused(Outcome const& outcome, std::string const& what) const {
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.out, testing::IsEmpty());
    EXPECT_THAT(outcome.err, testing::StartsWith("monge: error: "));
    EXPECT_THAT(outcome.err, testing::HasSubstr(what));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    expect_nothing_written();
  }

  void expect_nothing_written() const {
    EXPECT_FALSE(std::filesystem::exists(path("result")));
    for (auto const& entry : std::filesystem::directory_iterator(folder())) {
      EXPECT_THAT(entry.path().filename().string(), testing::Not(testing::StartsWith(".")));
    }
  }
};

/// With x.npy and y.npy, 40 and 30 points in 3 dimensions.
class ProgramWithClouds : public Program {
 protected:
  ProgramWithClouds() {
    points("x.npy", 40, 3, 1);
    points("y.npy", 30, 3, 2);
  }
};

}  // namespace monge::cli
