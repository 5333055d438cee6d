// Checkpoints: potentials of a solve that goes on, as files from which another solve may start.
#pragma once
#include <cstddef>
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
  /// Those of one problem are in the folder of the options, those of a batch in its folders of these names. Throws
  /// Error unless the folders can be written.
  explicit Checkpoints(CheckpointOptions const& options, std::vector<std::string> const& names = {""});

  /// Counts the check of the problem. Every few of them replace f.npy and g.npy, of which no reader sees a part.
  void note(Progress const& progress);

 private:
  int every_;
  std::vector<ResultFolder> folders_;  // None without checkpoints.
  std::vector<int> checks_;
};

}  // namespace monge::cli
