// The folder for the results of a command: all of them or, after an error, none. Of several ranks the first writes.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "array.hpp"

namespace monge::cli {

struct ResultFile {
  std::string name;
  std::variant<Array, IndexArray> array;
};

class ResultFolder {
 public:
  /// Checks now, before any long work, that the folder can be written; leaves no trace. Throws Error (input_output),
  /// whose message names the option.
  explicit ResultFolder(std::filesystem::path path, char const* option = "out");

  std::filesystem::path const& path() const { return path_; }

  /// Calls `write` with an empty folder on the same file system. When it returns, that folder becomes the result folder
  /// or, if there is one already, each new file replaces the one of its name there, and the files named in `earlier`
  /// that are not new are removed. When `write` throws, nothing is left or changed.
  void fill(std::function<void(std::filesystem::path const&)> const& write,
            std::vector<std::string> const& earlier = {}) const;
  /// The same with arrays and their report.json. `optional`: files that an earlier run of the command may have left,
  /// which a report.json there shows; they are removed. Returns a summary: "result: f.npy, report.json". A file that
  /// cannot be written is left out, and named in an Error once the others are in place.
  std::string fill(std::vector<ResultFile> const& files, std::string const& report,
                   std::vector<std::string> const& optional = {}) const;

 private:
  [[noreturn]] void cannot_write(std::string const& reason) const;
  /// The message with the name of the result folder in place of the staging folder's.
  std::string in_place_of(std::filesystem::path const& staging, std::string message) const;

  std::filesystem::path path_;
  char const* option_;
  std::filesystem::path existing_;  // path_, or the nearest folder above it that exists
};

}  // namespace monge::cli
