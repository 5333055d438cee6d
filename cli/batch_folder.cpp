#include "batch_folder.hpp"

#include <filesystem>
#include <utility>

#include <fmt/ranges.h>

#include "command_options.hpp"

namespace monge::cli {
namespace {

namespace fs = std::filesystem;

/// The field and the name of a problem, both empty for a file of no problem. labels_x_1 has the field labels_x.
std::pair<std::string, std::string> parts_of(std::string const& stem, std::vector<std::string> const& fields) {
  std::string longest;
  for (std::string const& field : fields) {
    if (stem.starts_with(field + '_') && field.size() > longest.size()) longest = field;
  }
  return longest.empty() ? std::pair<std::string, std::string>() : std::pair(longest, stem.substr(longest.size() + 1));
}

}  // namespace

std::string BatchProblemFiles::path(std::string const& field) const {
  auto const found = paths.find(field);
  return found == paths.end() ? std::string() : found->second;
}

std::vector<BatchProblemFiles> problems_in(std::string const& folder, std::vector<std::string> const& fields) {
  std::string const rule = fmt::format("must be FIELD_NAME.npy or .csv, FIELD one of {}", fmt::join(fields, ", "));
  std::map<std::string, BatchProblemFiles> problems;
  try {
    if (!fs::is_directory(folder)) refuse("batch: {}: is no folder; must be one with the files of problems", folder);
    for (fs::directory_entry const& entry : fs::directory_iterator(folder)) {
      fs::path const& path = entry.path();
      bool const is_array = path.extension() == ".npy" || path.extension() == ".csv";
      if (!is_array || path.filename().string().starts_with('.') || entry.is_directory()) continue;
      auto const [field, name] = parts_of(path.stem().string(), fields);
      if (name.empty()) refuse("batch: {}: belongs to no problem; names {}", path.string(), rule);
      if (name == "." || name == "..")
        refuse("batch: {}: has the problem's name '{}'; must be a name for a folder in out", path.string(), name);
      BatchProblemFiles& problem = problems[name];
      problem.name = name;
      if (!problem.paths.emplace(field, path.string()).second)
        refuse("batch: {}: is there as .npy and as .csv; must be one of them",
               (path.parent_path() / path.stem()).string());
    }
  } catch (fs::filesystem_error const& error) {
    refuse("batch: {}: {}; must be a folder that can be read", folder, error.code().message());
  }
  if (problems.empty()) refuse("batch: {}: has no problems; names of files {}", folder, rule);
  std::vector<BatchProblemFiles> result;
  result.reserve(problems.size());
  for (auto& [name, problem] : problems) result.push_back(std::move(problem));
  return result;
}

}  // namespace monge::cli
