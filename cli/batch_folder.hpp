// The problems of a folder, whose files are FIELD_NAME.npy or .csv: x_1.npy and y_1.npy make the problem "1".
#pragma once
#include <map>
#include <string>
#include <vector>

namespace monge::cli {

struct BatchProblemFiles {
  std::string name;
  std::map<std::string, std::string> paths;  ///< By field.

  /// Empty where there is no such file.
  std::string path(std::string const& field) const;
};

/// By name. Throws Error for a folder without problems, and for a .npy or .csv file of none of the fields. Other files,
/// hidden ones and folders are left alone.
std::vector<BatchProblemFiles> problems_in(std::string const& folder, std::vector<std::string> const& fields);

}  // namespace monge::cli
