#include "checkpoints.hpp"

#include <filesystem>
#include <utility>

#include "array_file.hpp"
#include "command_options.hpp"

namespace monge::cli {
namespace {

constexpr Field kEvery{"checkpoint_every", at_least(1), "checks from one checkpoint to the next"};

}  // namespace

void add_checkpoint_options(CLI::App& command, CheckpointOptions& options) {
  command
      .add_option("--checkpoint", options.folder,
                  "folder for the potentials of the solve as it goes, f.npy and g.npy; --f and --g start from them")
      ->type_name("FOLDER");
  add_option(command, kEvery, options.every, "10");
}

Checkpoints::Checkpoints(CheckpointOptions const& options, std::vector<std::string> const& names)
    : every_(options.every.value_or(10)), checks_(names.size()) {
  if (!kEvery.constraint.contains(every_))
    refuse("{}: is {}; must be {}", kEvery.name, every_, kEvery.constraint.text_in_full());
  if (options.folder.empty()) {
    if (options.every) refuse("checkpoint_every: is {}; is for checkpoint, which is not given", *options.every);
    return;
  }
  for (std::string const& name : names)
    folders_.emplace_back(name.empty() ? options.folder : options.folder + "/" + name, "checkpoint");
}

void Checkpoints::note(Progress const& progress) {
  std::size_t const k = static_cast<std::size_t>(progress.problem);
  if (folders_.empty() || ++checks_[k] % every_ != 0) return;
  Potentials present = progress.potentials();  // On every rank; the first one writes.
  auto const array = [](std::vector<double>& values) {
    return Array{{static_cast<std::int64_t>(values.size())}, std::move(values)};
  };
  Array const f = array(present.f), g = array(present.g);
  folders_[k].fill([&](std::filesystem::path const& into) {
    write_array(into / "f.npy", f);
    write_array(into / "g.npy", g);
  });
}

}  // namespace monge::cli
