#include <monge/error.hpp>
#include <monge/projection.hpp>

namespace monge {

ProjectionOptions projection_preset(ProjectionPreset preset) {
  ProjectionOptions options;
  switch (preset) {
    case ProjectionPreset::mhc_paper:
      options.order = ProjectionOrder::columns_first;
      break;
    case ProjectionPreset::deepseek:
      options.start = ProjectionStart::softmax;
      options.epsilon_mode = EpsilonMode::denominator;
      options.epsilon = 1e-6;
      break;
    case ProjectionPreset::megatron:
      options.start = ProjectionStart::exp_shifted;
      options.epsilon_mode = EpsilonMode::clamp;
      options.epsilon = 1e-6;
      break;
    case ProjectionPreset::blog:
      options.epsilon_mode = EpsilonMode::scaling;
      options.epsilon = 1e-6;
      break;
    case ProjectionPreset::gumbel_sinkhorn:
      options.log_domain = true;
      break;
    case ProjectionPreset::superglue:
      options.log_domain = true;
      options.dustbin = true;
      options.iterations = 100;
      break;
  }
  return options;
}

ProjectionOptions projection_preset(std::string_view preset) {
  if (auto const known = from_name<ProjectionPreset>(preset)) return projection_preset(*known);
  throw Error(ErrorCode::invalid_argument,
              "preset: is '" + std::string(preset) + "'; must be one of " + names_text<ProjectionPreset>());
}

}  // namespace monge
