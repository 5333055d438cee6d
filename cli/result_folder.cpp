#include "result_folder.hpp"

#include <unistd.h>

#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "array_file.hpp"
#include "ranks.hpp"

namespace monge::cli {
namespace {

namespace fs = std::filesystem;

/// A folder with a unique name; the destructor removes it with its contents.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path const& parent) {
    int attempt = 0;
    do {
      path_ = parent / fmt::format(".monge-{}-{}", ::getpid(), attempt++);
    } while (!fs::create_directory(path_));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;

  fs::path const& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

void ResultFolder::cannot_write(std::string const& reason) const {
  throw Error(ErrorCode::input_output, fmt::format("{}: {}: {}; must be a folder that can be written, or can be made",
                                                   option_, path_.string(), reason));
}

ResultFolder::ResultFolder(fs::path path, char const* option) : path_(std::move(path)), option_(option) {
  if (!is_first_rank()) return;
  if (path_.empty()) cannot_write("is an empty path");
  try {
    existing_ = fs::absolute(path_).lexically_normal();
    if (!existing_.has_filename()) existing_ = existing_.parent_path();  // "result/" is "result"
    while (!fs::exists(existing_)) {
      if (fs::is_symlink(existing_)) cannot_write("is a link to nowhere");
      existing_ = existing_.parent_path();
    }
    if (!fs::is_directory(existing_)) cannot_write(fmt::format("{} is a file", existing_.string()));
    TemporaryFolder const probe(existing_);
  } catch (fs::filesystem_error const& error) {
    cannot_write(error.code().message());
  }
}

void ResultFolder::fill(std::function<void(fs::path const&)> const& write,
                        std::vector<std::string> const& earlier) const {
  if (!is_first_rank()) return;
  try {
    TemporaryFolder const staging(existing_);
    write(staging.path());
    fs::path target = fs::absolute(path_).lexically_normal();
    if (!target.has_filename()) target = target.parent_path();
    if (!fs::exists(target)) {
      fs::create_directories(target.parent_path());
      fs::rename(staging.path(), target);
      return;
    }
    for (std::string const& name : earlier) {
      if (!fs::exists(staging.path() / name)) fs::remove(target / name);
    }
    std::vector<fs::path> const files{fs::directory_iterator(staging.path()), {}};
    for (fs::path const& file : files) fs::rename(file, target / file.filename());
  } catch (fs::filesystem_error const& error) {
    cannot_write(error.code().message());
  }
}

std::string ResultFolder::in_place_of(fs::path const& staging, std::string message) const {
  std::string const name = staging.string();
  std::size_t const at = message.find(name);
  return at == std::string::npos ? message : message.replace(at, name.size(), path_.string());
}

std::string ResultFolder::fill(std::vector<ResultFile> const& files, std::string const& report,
                               std::vector<std::string> const& optional) const {
  std::string written = path_.string() + ": ", lacking;
  auto const write_file = [&](fs::path const& into, ResultFile const& file) {
    try {
      std::visit([&](auto const& array) { write_array(into / file.name, array); }, file.array);
      written += file.name + ", ";
    } catch (Error const& error) {  // The disk is full: others may find room.
      fs::remove(into / file.name);
      lacking += (lacking.empty() ? "" : "; ") + in_place_of(into, error.what());
    }
  };
  auto const write = [&](fs::path const& into) {
    for (ResultFile const& file : files) write_file(into, file);
    try {
      write_text(into / "report.json", report);
    } catch (Error const& error) {
      throw Error(error.code(), in_place_of(into, error.what()));
    }
    written += "report.json";
  };
  // Without a report the files are not those of an earlier run.
  bool const ran_before = fs::exists(path_ / "report.json");
  fill(write, ran_before ? optional : std::vector<std::string>());
  if (!lacking.empty()) throw Error(ErrorCode::input_output, lacking + "; all other results were written");
  return written;
}

}  // namespace monge::cli
