#include "projection/cases.hpp"

#include <cmath>
#include <random>

#include "cpu/projection/elements.hpp"

namespace monge::oracle {
std::vector<ProjectionCase> cases() {
  using P = ProjectionPreset;
  auto const rows_first = [](ProjectionOptions& o) { o.order = ProjectionOrder::rows_first; };
  auto const columns_first = [](ProjectionOptions& o) { o.order = ProjectionOrder::columns_first; };
  std::vector<ProjectionCase> all;
  for (P const preset : {P::mhc_paper, P::deepseek, P::megatron, P::blog, P::gumbel_sinkhorn}) {
    std::string const label(name(preset));
    all.push_back({label + " 4x4", with(preset, 20), 4, 4, 70});
    all.push_back({label + " 4x4 wide", with(preset, 20), 4, 4, 70, 4});
    all.push_back({label + " 4x4 one iteration", with(preset, 1), 4, 4});
    all.push_back({label + " 4x4 in a wider row", with(preset, 7), 4, 4, 70, 1, DataType::float32, true});
    all.push_back({label + " 8x8", with(preset, 20), 8, 8});
    all.push_back({label + " 3x5", with(preset, 9), 3, 5});
    all.push_back({label + " 16x16", with(preset, 5), 16, 16, 21});
    all.push_back({label + " columns first 2x2", with(preset, 6, columns_first), 2, 2});
    all.push_back({label + " rows first 7x6 marginals", with(preset, 6, rows_first), 7, 6, 19, 1, DataType::float32,
                   false, true});
    all.push_back({label + " columns first 5x9 marginals", with(preset, 6, columns_first), 5, 9, 19, 1,
                   DataType::float32, false, true});
    all.push_back({label + " 4x4 marginals", with(preset, 6), 4, 4, 40, 1, DataType::float32, false, true});
    all.push_back({label + " 1x3", with(preset, 3), 1, 3});
    all.push_back({label + " 64x64", with(preset, 5), 64, 64, 3});
    all.push_back({label + " 33x70", with(preset, 4), 33, 70, 3});
    all.push_back({label + " 128x128", with(preset, 5), 128, 128, 2});
    all.push_back({label + " 40x131", with(preset, 4), 40, 131, 2});
  }
  all.push_back({"superglue 5x9", with(P::superglue, 30), 5, 9});
  all.push_back({"superglue 70x40", with(P::superglue, 10), 70, 40, 2});
  all.push_back({"superglue 129x40", with(P::superglue, 10), 129, 40, 2});
  all.push_back({"superglue linear 15x15", with(P::superglue, 12, [](auto& o) { o.log_domain = false; }), 15, 15});
  all.push_back({"superglue score", with(P::superglue, 20, [](auto& o) { o.dustbin_score = -0.7; }), 6, 4});
  all.push_back({"superglue marginals", with(P::superglue, 20), 5, 9, 21, 1, DataType::float32, false, true});
  all.push_back({"dustbin deepseek 3x3", with(P::deepseek, 20, [](auto& o) { o.dustbin = true; }), 3, 3});
  for (DataType const type : {DataType::bfloat16, DataType::float16}) {
    all.push_back({std::string(name(type)) + " 4x4", with(P::mhc_paper, 20), 4, 4, 70, 1, type});
    all.push_back({std::string(name(type)) + " 5x3", with(P::megatron, 20), 5, 3, 40, 1, type});
    all.push_back({std::string(name(type)) + " 16x16", with(P::deepseek, 20), 16, 16, 9, 1, type});
  }
  auto const matrix_eps = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::matrix;
    o.epsilon = 1e-2;
  };
  auto const big_denominator = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::denominator;
    o.epsilon = 0.1;
  };
  auto const big_scaling = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::scaling;
    o.epsilon = 0.1;
  };
  auto const clamping = [](ProjectionOptions& o) {
    o.epsilon_mode = EpsilonMode::clamp;
    o.epsilon = 0.7;
  };
  for (int const size : {4, 6, 8, 80, 130}) {
    std::string shape = std::to_string(size);
    shape.insert(shape.begin(), ' ');
    int const batch = size >= 80 ? 3 : 33;
    all.push_back({"matrix" + shape, with(P::mhc_paper, 5, matrix_eps), size, size, batch});
    all.push_back({"denominator" + shape, with(P::mhc_paper, 5, big_denominator), size, size, batch});
    all.push_back({"scaling columns" + shape, with(P::mhc_paper, 5, big_scaling), size, size, batch});
    all.push_back({"clamp" + shape, with(P::mhc_paper, 5, clamping), size, size, batch});
    all.push_back({"megatron clamping" + shape, with(P::megatron, 5, clamping), size, size, batch, 2});
    // The epsilon is small enough for plain steps where the first pair clamps nothing, and large enough to clamp in
    // some matrices.
    auto const clamping_early = [&](ProjectionOptions& o) { o.epsilon = 0.4 / size; };
    all.push_back({"megatron clamping early" + shape, with(P::megatron, 5, clamping_early), size, size, batch, 2});
    all.push_back({"softmax columns first" + shape, with(P::deepseek, 5, columns_first), size, size, batch});
    all.push_back(
        {"temperature" + shape, with(P::gumbel_sinkhorn, 5, [](auto& o) { o.temperature = 0.4; }), size, size, batch});
    all.push_back({"positive" + shape, with(P::mhc_paper, 5, [](auto& o) { o.start = ProjectionStart::positive; }),
                   size, size, batch});
    all.push_back({"row sum" + shape, with(P::blog, 5, [](auto& o) { o.row_sum = 2.5; }), size, size, batch});
    all.push_back({"log positive" + shape,
                   with(P::gumbel_sinkhorn, 5, [](auto& o) { o.start = ProjectionStart::positive; }), size, size,
                   batch});
    all.push_back({"shifted matrix" + shape, with(P::megatron, 5, matrix_eps), size, size, batch});
    all.push_back({"log softmax" + shape,
                   with(P::gumbel_sinkhorn, 5, [](auto& o) { o.start = ProjectionStart::softmax; }), size, size,
                   batch});
  }
  return all;
}

double entry_tolerance(ProjectionCase const& test) {
  double const largest_exponent = 4 * test.spread / test.options.temperature;
  return 6e-8 * (16 + 4 * largest_exponent + 2 * std::sqrt(test.rows + test.columns));
}

Data::Data(ProjectionCase const& given)
    : test(given), n(given.rows + given.options.dustbin), m(given.columns + given.options.dustbin) {
  std::mt19937 random(static_cast<unsigned>(given.rows * 1000 + given.columns));
  std::normal_distribution<float> normal;
  row_stride = given.strided ? given.columns + 4 : given.columns;
  batch_stride = row_stride * given.rows + (given.strided ? 8 : 0);
  logits.resize(static_cast<std::size_t>(batch_stride * given.batch));
  gradient.resize(static_cast<std::size_t>(n * m * given.batch));
  for (float& x : logits) {
    x = normal(random) * static_cast<float>(given.spread);
    if (given.options.start == ProjectionStart::positive) x = std::exp(x);
  }
  for (float& x : gradient) x = normal(random);
  if (given.type != DataType::float32) {
    logit_bits.resize(logits.size());
    gradient_bits.resize(gradient.size());
    round(logits, logit_bits);
    round(gradient, gradient_bits);
  }
  if (given.marginals) {
    double total_a = 0, total_b = 0;
    for (int i = 0; i < n; ++i) total_a += a.emplace_back(i % 4 == 1 ? 0.0f : static_cast<float>(0.5 + i % 3));
    for (int j = 0; j < m; ++j) total_b += b.emplace_back(static_cast<float>(1 + j % 2));
    for (float& x : b) x *= static_cast<float>(total_a / total_b);
  }
}

void Data::round(std::vector<float>& values, std::vector<std::uint16_t>& bits) const {
  for (std::size_t k = 0; k < values.size(); ++k) {
    cpu::store_element(bits.data(), test.type, static_cast<std::int64_t>(k), values[k]);
    values[k] = cpu::load_element(bits.data(), test.type, static_cast<std::int64_t>(k));
  }
}

}  // namespace monge::oracle
