// Several threads of a CPU give the bits of one: matrices are shared out in whole groups of 32, and the sums over the
// tokens of an mHC layer are those of parts of 256 tokens, added in their order.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>

#include "projection/cases.hpp"

namespace monge::oracle {
namespace {

constexpr int kThreads[] = {2, 3};

std::vector<float> normal(std::int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value;
  std::vector<float> result(static_cast<std::size_t>(size));
  for (float& x : result) x = value(random);
  return result;
}

std::vector<std::uint32_t> bits_of(std::initializer_list<std::vector<float>> arrays) {
  std::vector<std::uint32_t> result;
  for (std::vector<float> const& array : arrays) {
    for (float const value : array) result.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return result;
}

/// The projection of a batch and its gradients.
std::vector<std::uint32_t> projected(Context const& context, ProjectionCase const& test, Data const& data) {
  auto const batch = static_cast<std::size_t>(test.batch);
  std::vector<float> out(batch * static_cast<std::size_t>(data.n * data.m)),
      d_logits(batch * static_cast<std::size_t>(test.rows * test.columns)), d_score(test.options.dustbin ? batch : 0);
  ProjectionOptions const options = data.options();
  project(context, data.logit_view(), {out.data(), test.batch, data.n, data.m}, options);
  project_backward(context, data.logit_view(), data.gradient_view(),
                   {d_logits.data(), test.batch, test.rows, test.columns}, options, d_score);
  return bits_of({out, d_logits, d_score});
}

TEST(ProjectionThreads, LeaveTheBitsOfABatch) {
  for (ProjectionCase test : cases()) {
    test.batch = test.rows * test.columns < 1000 ? 131 : 67;  // Five groups or three, the last of three matrices.
    SCOPED_TRACE(test.name + " " + std::to_string(test.rows) + " x " + std::to_string(test.columns));
    Data const data(test);
    std::vector<std::uint32_t> const expected = projected(Context::cpu(1), test, data);
    for (int const threads : kThreads) EXPECT_EQ(projected(Context::cpu(threads), test, data), expected) << threads;
  }
}

/// The maps of an mHC layer and their gradients.
std::vector<std::uint32_t> mapped(Context const& context, std::int64_t tokens) {
  std::vector<float> mixes = normal(24 * tokens, 1), d_pre = normal(4 * tokens, 4), d_res = normal(16 * tokens, 6);
  std::vector<float> const scale = normal(3, 2), base = normal(24, 3), d_post = normal(4 * tokens, 5);
  // Large terms that cancel: their rounding shows in which order the sums were made.
  for (std::int64_t t = 0; t < tokens / 4; ++t) {
    auto const first = static_cast<std::size_t>(t), last = static_cast<std::size_t>(tokens - 1 - t);
    std::copy_n(&mixes[24 * first], 24, &mixes[24 * last]);
    for (std::size_t k = 0; k < 4; ++k) {
      d_pre[4 * first + k] *= 1e12f;
      d_pre[4 * last + k] = -d_pre[4 * first + k];
    }
  }
  std::vector<float> pre(d_pre.size()), post(d_pre.size()), res(d_res.size()), d_mixes(mixes.size()), d_scale(3),
      d_base(24);
  mhc_mapping(context, {mixes.data(), tokens, 24}, scale, base, {pre.data(), tokens, 4}, {post.data(), tokens, 4},
              {res.data(), tokens, 4, 4});
  mhc_mapping_backward(context, {mixes.data(), tokens, 24}, scale, base, {d_pre.data(), tokens, 4},
                       {d_post.data(), tokens, 4}, {d_res.data(), tokens, 4, 4}, {d_mixes.data(), tokens, 24}, d_scale,
                       d_base);
  return bits_of({pre, post, res, d_mixes, d_scale, d_base});
}

TEST(ProjectionThreads, LeaveTheBitsOfAnMhcLayer) {
  for (std::int64_t const tokens : {257, 1000, 3000}) {  // Two parts, four and twelve.
    std::vector<std::uint32_t> const expected = mapped(Context::cpu(1), tokens);
    for (int const threads : kThreads) EXPECT_EQ(mapped(Context::cpu(threads), tokens), expected) << tokens;
  }
}

}  // namespace
}  // namespace monge::oracle
