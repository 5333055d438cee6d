// The fused mHC mapping against its parts.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

class MhcTest : public BackendTest {};

TEST_P(MhcTest, MappingAndGradients) {
  std::vector<std::pair<std::string, MhcOptions>> variants;
  for (auto const& [value, preset] : kNames<ProjectionPreset>) {
    MhcOptions options;
    options.projection = projection_preset(preset);
    options.projection.dustbin = false;
    options.projection.iterations = std::min(options.projection.iterations, 20);
    if (preset == "deepseek") options.pre_epsilon = 1e-6;
    variants.emplace_back(preset, options);
  }
  std::vector<std::array<int, 3>> shapes;
  for (int const streams : {1, 2, 4, 5, 8})
    for (int const tokens : {1, 45, 1000})
      for (int const gap : {0, 5}) shapes.push_back({streams, tokens, gap});
  shapes.push_back({12, 45, 0});
  for (auto const& [label, options] : variants) {
    for (auto const [streams, tokens, gap] : shapes) {
      std::size_t const n = static_cast<std::size_t>(streams), columns = n * (n + 2), cells = n * n;
      int const column_count = static_cast<int>(columns), stride = column_count + gap;
      SCOPED_TRACE(label + " " + std::to_string(streams) + " streams, " + std::to_string(tokens) + " tokens, stride " +
                   std::to_string(stride));
      std::mt19937 random(3);
      std::normal_distribution<float> normal;
      std::vector<float> mixes(static_cast<std::size_t>(tokens * stride)), scale{0.7f, -0.4f, 1.1f}, base(columns);
      for (float& x : mixes) x = normal(random);
      for (float& x : base) x = 0.5f * normal(random);
      auto const size = static_cast<std::size_t>(tokens);
      std::vector<float> pre(n * size), post(n * size), res(cells * size), d_pre(n * size), d_post(n * size),
          d_res(cells * size);
      for (auto* values : {&d_pre, &d_post, &d_res})
        for (float& x : *values) x = normal(random);
      mhc_mapping(context(), {mixes.data(), tokens, column_count, stride}, scale, base, {pre.data(), tokens, streams},
                  {post.data(), tokens, streams}, {res.data(), tokens, streams, streams}, options);
      std::vector<float> d_mixes(mixes.size(), 5.0f), d_scale(3, 5.0f), d_base(columns, 5.0f);
      mhc_mapping_backward(context(), {mixes.data(), tokens, column_count, stride}, scale, base,
                           {d_pre.data(), tokens, streams}, {d_post.data(), tokens, streams},
                           {d_res.data(), tokens, streams, streams}, {d_mixes.data(), tokens, column_count, stride},
                           d_scale, d_base, options);
      // The maps and d_mixes, token by token, from project() and project_backward(), which have tests of their own.
      std::vector<float> logits(cells * size), d_logits(cells * size), expected(cells * size);
      for (std::size_t t = 0; t < size; ++t)
        for (std::size_t k = 0; k < cells; ++k)
          logits[cells * t + k] =
              std::fma(scale[2], mixes[t * static_cast<std::size_t>(stride) + 2 * n + k], base[2 * n + k]);
      project(context(), {logits.data(), tokens, streams, streams}, {expected.data(), tokens, streams, streams},
              options.projection);
      project_backward(context(), {logits.data(), tokens, streams, streams}, {d_res.data(), tokens, streams, streams},
                       {d_logits.data(), tokens, streams, streams}, options.projection);
      std::vector<double> sums(3 + columns), magnitude(3 + columns);
      for (std::size_t t = 0; t < size; ++t) {
        for (std::size_t k = 0; k < columns; ++k) {
          std::size_t const part = k < n ? 0 : k < 2 * n ? 1 : 2;
          double const mix = mixes[t * static_cast<std::size_t>(stride) + k];
          double d;
          if (k < 2 * n) {
            double const s = 1 / (1 + std::exp(-(scale[part] * mix + base[k])));
            double const value = k < n ? s + options.pre_epsilon : options.post_factor * s;
            EXPECT_NEAR((k < n ? pre : post)[n * t + k % n], value, 1e-6);
            d = (k < n ? d_pre[n * t + k] : options.post_factor * d_post[n * t + k - n]) * s * (1 - s);
          } else {
            EXPECT_NEAR(res[cells * t + k - 2 * n], expected[cells * t + k - 2 * n], 1e-6);
            d = d_logits[cells * t + k - 2 * n];
          }
          EXPECT_NEAR(d_mixes[t * static_cast<std::size_t>(stride) + k], scale[part] * d, 3e-6);
          sums[part] += d * mix;
          sums[3 + k] += d;
          magnitude[part] += std::abs(d * mix);
          magnitude[3 + k] += std::abs(d);
        }
        for (std::size_t k = columns; k < static_cast<std::size_t>(stride); ++k)
          EXPECT_EQ(d_mixes[t * static_cast<std::size_t>(stride) + k], 5.0f);
      }
      for (std::size_t k = 0; k < 3 + columns; ++k)
        EXPECT_NEAR(k < 3 ? d_scale[k] : d_base[k - 3], sums[k], 3e-6 * (1 + magnitude[k])) << k;
      std::vector<float> again_scale(3), again_base(columns);
      mhc_mapping_backward(context(), {mixes.data(), tokens, column_count, stride}, scale, base,
                           {d_pre.data(), tokens, streams}, {d_post.data(), tokens, streams},
                           {d_res.data(), tokens, streams, streams}, {d_mixes.data(), tokens, column_count, stride},
                           again_scale, again_base, options);
      EXPECT_EQ(again_scale, d_scale);
      EXPECT_EQ(again_base, d_base);
    }
  }
}

TEST_P(MhcTest, NoTokensGiveGradientsOfZero) {
  std::vector<float> scale(3, 1.0f), base(24), d_scale(3, 5.0f), d_base(24, 5.0f);
  float* const none = nullptr;
  mhc_mapping(context(), {none, 0, 24}, scale, base, {none, 0, 4}, {none, 0, 4}, {none, 0, 4, 4});
  mhc_mapping_backward(context(), {none, 0, 24}, scale, base, {none, 0, 4}, {none, 0, 4}, {none, 0, 4, 4},
                       {none, 0, 24}, d_scale, d_base);
  EXPECT_EQ(d_scale, std::vector<float>(3));
  EXPECT_EQ(d_base, std::vector<float>(24));
}

TEST_P(MhcTest, BadCallsSayWhatIsWrong) {
  std::vector<float> mixes(3 * 24), scale(3), base(24), pre(12), post(12), res(48), d_mixes(3 * 24), d_scale(3),
      d_base(24);
  auto const map = [&](MhcOptions const& options, MutableMatrixView into_pre, MutableMatrixView into_post) {
    mhc_mapping(context(), {mixes.data(), 3, 24}, scale, base, into_pre, into_post, {res.data(), 3, 4, 4}, options);
  };
  MutableMatrixView const to_pre(pre.data(), 3, 4), to_post(post.data(), 3, 4);
  auto const with = [](auto&& change) {
    MhcOptions options;
    change(options);
    return options;
  };
  expect_refused("dustbin: is true; an mHC mapping has none",
                 [&] { map(with([](auto& o) { o.projection.dustbin = true; }), to_pre, to_post); });
  expect_refused("start: is positive; an mHC mapping takes logits",
                 [&] { map(with([](auto& o) { o.projection.start = ProjectionStart::positive; }), to_pre, to_post); });
  expect_refused("pre_epsilon: is -1; must be finite and >= 0",
                 [&] { map(with([](auto& o) { o.pre_epsilon = -1; }), to_pre, to_post); });
  expect_refused("post_factor: is nan; must be finite and > 0",
                 [&] { map(with([](auto& o) { o.post_factor = NAN; }), to_pre, to_post); });
  expect_refused("iterations: is -1; must be >= 1",
                 [&] { map(with([](auto& o) { o.projection.iterations = -1; }), to_pre, to_post); });
  expect_refused("pre: is 2 x 4; must be 3 x 4", [&] { map({}, {pre.data(), 2, 4}, to_post); });
  expect_refused("post: overlaps pre; must be other memory", [&] { map({}, to_pre, {pre.data(), 3, 4}); });
  expect_refused("pre: overlaps mixes; must be other memory", [&] { map({}, {mixes.data() + 60, 3, 4}, to_post); });
  expect_refused("post: overlaps base; must be other memory", [&] { map({}, to_pre, {base.data(), 3, 4}); });
  expect_refused("mixes: has 23 columns; must have n (n + 2) for n streams: 8, 24 or 80 for 2, 4 or 8", [&] {
    mhc_mapping(context(), {mixes.data(), 3, 23}, scale, base, to_pre, to_post, {res.data(), 3, 4, 4});
  });
  auto const back = [&](MutableMatrixView into, MutableVectorView into_scale, MutableVectorView into_base) {
    mhc_mapping_backward(context(), {mixes.data(), 3, 24}, scale, base, {pre.data(), 3, 4}, {post.data(), 3, 4},
                         {res.data(), 3, 4, 4}, into, into_scale, into_base);
  };
  expect_refused("d_mixes: overlaps mixes; must be other memory", [&] {
    back({mixes.data(), 3, 24}, d_scale, d_base);
  });
  expect_refused("d_base: overlaps d_mixes; must be other memory", [&] {
    back({d_mixes.data(), 3, 24}, d_scale, {d_mixes.data(), 24});
  });
  expect_refused("d_scale: has 24 entries; must have 3", [&] { back({d_mixes.data(), 3, 24}, d_base, d_scale); });
}

MONGE_FOR_EACH_DEVICE(MhcTest);

}  // namespace
}  // namespace monge::oracle
