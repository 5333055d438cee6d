// Checkpoints: potentials of a solve that goes on, as files from which another solve may start.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <monge/report.hpp>

#include "result_folder.hpp"

namespace monge::cli {

struct CheckpointOptions {
  std::string folder;        ///< Empty for none.
  std::optional<int> every;  ///< 10 if not given.
};

void add_checkpoint_options(CLI::App& command, CheckpointOptions& options);

class Checkpoints {
 public:
  /// The checkpoints of one problem are in the folder of the options. A batch has a subfolder there for each problem,
  /// with these names. Throws Error unless the folders can be written.
  explicit Checkpoints(CheckpointOptions const& options, std::vector<std::string> const& names = {""});

  /// Counts the checks of the problem. At each `every`-th check new files replace f.npy and g.npy. A reader sees the
  /// old file or the new file, never a part of one.
  void note(Progress const& progress);

 private:
  int every_;
  std::vector<ResultFolder> folders_;  // None without checkpoints.
  std::vector<int> checks_;
};

}  // namespace monge::cli
