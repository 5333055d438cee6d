// Batches of matrices projected onto the couplings with given row and column sums, by Sinkhorn's iteration, and the
// gradient of this projection. The doubly stochastic projection of mHC layers, Gumbel-Sinkhorn, SuperGlue's
// matching and Sinkhorn routing are presets of one iteration, which docs/projection.md defines.
//   P = diag(u) K diag(v),   K_ij from the logits,
//   u_i = a_i / (sum_j K_ij v_j + ...),   v_j = b_j / (sum_i K_ij u_i + ...)
// Source: Fused & Furious, section II; mHC (arXiv 2512.24880), eq. 8 and 9.
#pragma once
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <vector>

#include <monge/array.hpp>
#include <monge/context.hpp>
#include <monge/export.hpp>
#include <monge/options.hpp>

namespace monge {

namespace detail {

/// B matrices of n x m; element (t, i, j) is data[t * batch_stride + i * row_stride + j]. Elements are float16,
/// bfloat16 or float32; the arithmetic is always float32.
template <class Void>
class BasicBatchView {
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Void>, T const, T>;

 public:
  BasicBatchView() = default;
  /// Strides are in elements.
  BasicBatchView(Void* data, DataType type, std::int64_t batch, int rows, int columns,
                 std::int64_t batch_stride = kContiguous, std::int64_t row_stride = kContiguous, Device device = {})
      : data_(data),
        batch_(batch),
        row_stride_(row_stride == kContiguous ? columns : row_stride),
        batch_stride_(batch_stride == kContiguous ? rows * row_stride_ : batch_stride),
        rows_(rows),
        columns_(columns),
        type_(type),
        device_(device) {}
  BasicBatchView(Element<float>* data, std::int64_t batch, int rows, int columns,
                 std::int64_t batch_stride = kContiguous, std::int64_t row_stride = kContiguous, Device device = {})
      : BasicBatchView(data, DataType::float32, batch, rows, columns, batch_stride, row_stride, device) {}
  /// A writable view is readable.
  template <ReadableAs<Void> Other>
  BasicBatchView(BasicBatchView<Other> const& other)  // NOLINT(google-explicit-constructor)
      : BasicBatchView(other.data(), other.type(), other.batch(), other.rows(), other.columns(), other.batch_stride(),
                       other.row_stride(), other.device()) {}

  Void* data() const { return data_; }
  std::int64_t batch() const { return batch_; }
  int rows() const { return rows_; }
  int columns() const { return columns_; }
  std::int64_t batch_stride() const { return batch_stride_; }
  std::int64_t row_stride() const { return row_stride_; }
  DataType type() const { return type_; }
  Device device() const { return device_; }

 private:
  Void* data_ = nullptr;
  std::int64_t batch_ = 0;
  std::int64_t row_stride_ = 0;
  std::int64_t batch_stride_ = 0;
  int rows_ = 0;
  int columns_ = 0;
  DataType type_ = DataType::float32;
  Device device_;
};

}  // namespace detail

using BatchView = detail::BasicBatchView<void const>;   ///< Read-only.
using MutableBatchView = detail::BasicBatchView<void>;  ///< Writable.

/// The sums that an iteration normalises first; the sums of the other side are exact at the end.
enum class ProjectionOrder { rows_first, columns_first };
constexpr auto names_of(ProjectionOrder) {
  using enum ProjectionOrder;
  return std::to_array<Named<ProjectionOrder>>({{rows_first, "rows_first"}, {columns_first, "columns_first"}});
}

/// The formula of K in terms of x = logits / temperature.
enum class ProjectionStart {
  exp,          ///< exp(x). Internal shifts, which do not change the result, keep large logits from overflowing.
  exp_shifted,  ///< exp(x - row maximum); differs from exp in the meaning of eps, and with columns first.
  softmax,      ///< Softmax of each row, + eps; with rows_first it is the first row step.
  positive,     ///< The input itself, which must be >= 0.
};
constexpr auto names_of(ProjectionStart) {
  using enum ProjectionStart;
  return std::to_array<Named<ProjectionStart>>(
      {{exp, "exp"}, {exp_shifted, "exp_shifted"}, {softmax, "softmax"}, {positive, "positive"}});
}

/// Where `epsilon` enters.
enum class EpsilonMode {
  none,
  denominator,  ///< x / (sum + eps): added to the sums of the scaled matrix.
  scaling,      ///< u = a / (K v + eps): added to the sums of K.
  matrix,       ///< K + eps: added once, at the start.
  clamp,        ///< x / max(sum, eps).
};
constexpr auto names_of(EpsilonMode) {
  using enum EpsilonMode;
  return std::to_array<Named<EpsilonMode>>(
      {{none, "none"}, {denominator, "denominator"}, {scaling, "scaling"}, {matrix, "matrix"}, {clamp, "clamp"}});
}

enum class ProjectionGradient {
  unrolled,  ///< The exact gradient of the iterations, which are recomputed; nothing is stored between the passes.
  implicit,  ///< The gradient of the limit, for matrices with errors of the sums up to implicit_tolerance; else
             ///< unrolled.
};
constexpr auto names_of(ProjectionGradient) {
  using enum ProjectionGradient;
  return std::to_array<Named<ProjectionGradient>>({{unrolled, "unrolled"}, {implicit, "implicit"}});
}

/// A convention in use, by name; projection_preset() gives its options.
enum class ProjectionPreset { mhc_paper, deepseek, megatron, blog, gumbel_sinkhorn, superglue };
constexpr auto names_of(ProjectionPreset) {
  using enum ProjectionPreset;
  return std::to_array<Named<ProjectionPreset>>({{mhc_paper, "mhc_paper"},
                                                 {deepseek, "deepseek"},
                                                 {megatron, "megatron"},
                                                 {blog, "blog"},
                                                 {gumbel_sinkhorn, "gumbel_sinkhorn"},
                                                 {superglue, "superglue"}});
}

/// Largest n and m of the output: 2048 x 2048 logits and a dustbin. Larger matrices are problems for solve().
inline constexpr int kLargestProjection = 2049;

/// Options of project() and project_backward(). Both calls must get the same.
struct ProjectionOptions {
  ProjectionOrder order = ProjectionOrder::rows_first;
  ProjectionStart start = ProjectionStart::exp;
  EpsilonMode epsilon_mode = EpsilonMode::none;
  double epsilon = 0;   ///< >= 0. With epsilon_mode none only softmax uses it.
  int iterations = 20;  ///< One is a row step and a column step; >= 1. With a tolerance, at most this many. A GPU may
                        ///< skip iterations that cannot change an entry by more than 2^-20 of its value.
  /// Each matrix stops when all sums of the first side have at most this relative error; 0: never.
  double tolerance = 0;
  double temperature = 1;   ///< > 0; 1 with start positive.
  bool log_domain = false;  ///< Log-sum-exp half-steps, for spreads of logits / temperature beyond 80. CUDA takes plain
                            ///< ones for 4 x 4 and 8 x 8 matrices of smaller spread. Needs epsilon_mode none.
  bool dustbin = false;     ///< One more row and column of logits `dustbin_score`; the output is (n + 1) x (m + 1), and
                            ///< its sums are 1, ..., 1, m and 1, ..., 1, n unless marginals are given.
  double dustbin_score = 1;
  ProjectionGradient gradient = ProjectionGradient::unrolled;
  double implicit_tolerance = 1e-4;  ///< > 0, relative, on the sums of the first side.
  double row_sum = 1;                ///< > 0; every a_i. Every b_j is then n row_sum / m.
  VectorView row_marginal = {};  ///< a, replaces row_sum; >= 0, one for all matrices. If it lies in device memory, the
                                 ///< call waits.
  VectorView column_marginal = {};  ///< b; its total must be that of a, to 1e-5.
};

/// Like visit_solve_options, for the options that project() reads.
template <class Options, class Visitor>
void visit_forward_options(Options& options, Visitor&& visit) {
  visit(Field{"order", OneOf<ProjectionOrder>(), "sums that an iteration normalises first"}, options.order);
  visit(Field{"start", OneOf<ProjectionStart>(), "how the matrix is computed from the logits"}, options.start);
  visit(Field{"epsilon_mode", OneOf<EpsilonMode>(), "where epsilon enters"}, options.epsilon_mode);
  visit(Field{"epsilon", kNotNegative, "guard of the sums; used by softmax and the epsilon modes"}, options.epsilon);
  visit(Field{"iterations", at_least(1), "row and column steps, at most this many with a tolerance"},
        options.iterations);
  visit(Field{"tolerance", kNotNegative, "stop a matrix when the relative error of its sums is at most this; 0: never"},
        options.tolerance);
  visit(Field{"temperature", kPositive, "divides the logits"}, options.temperature);
  visit(Field{"log_domain", OneOf<bool>(), "log-sum-exp steps, for wide spreads of the logits"}, options.log_domain);
  visit(Field{"dustbin", OneOf<bool>(), "add a row and a column for points without a match"}, options.dustbin);
  visit(Field{"dustbin_score", kFinite, "logit of the dustbin"}, options.dustbin_score);
  visit(Field{"row_sum", kPositive, "sum of each row"}, options.row_sum);
}

/// Like visit_solve_options, for all options: project_backward() reads two more.
template <class Options, class Visitor>
void visit_projection_options(Options& options, Visitor&& visit) {
  visit_forward_options(options, visit);
  visit(Field{"gradient", OneOf<ProjectionGradient>(), "gradient of the iterations done, or of their limit"},
        options.gradient);
  visit(Field{"implicit_tolerance", kPositive, "error of the sums up to which a matrix counts as at the limit"},
        options.implicit_tolerance);
}

/// The options of a convention:
///   mhc_paper        columns first, exp, no eps, 20                     mHC, eq. 9
///   deepseek         rows first, softmax + 1e-6, denominator 1e-6, 20   DeepSeek's TileKernels
///   megatron         rows first, exp_shifted, clamp 1e-6, 20            Megatron-LM
///   blog             rows first, exp, scaling 1e-6, 20                  Fused & Furious
///   gumbel_sinkhorn  rows first, log domain, 20                         Mena et al. 2018 (the caller adds the noise)
///   superglue        rows first, log domain, dustbin, 100               SuperGlue; the plan itself, not its logarithm
MONGE_API ProjectionOptions projection_preset(ProjectionPreset preset);
/// Throws Error for an unknown name; the message lists the known ones.
MONGE_API ProjectionOptions projection_preset(std::string_view preset);

/// out (B, n, m) = the projection of each matrix of logits (B, n, m); with a dustbin out is (B, n + 1, m + 1). On CUDA
/// the call returns when its work is enqueued in the context's stream; on the CPU, when it is done. A row or column
/// without mass, such as one of -inf logits, stays zero. A NaN stays within its matrix. The bits of a matrix do not
/// depend on its place in the batch. n and m may be up to kLargestProjection. On CUDA, matrices larger than 128 x 128
/// need a buffer: the context keeps about 256 MiB, or as much as one matrix needs if this is more. The gradient of such
/// matrices must be unrolled. A CUDA context copies matrices in host memory, and waits. Throws Error (invalid_argument:
/// shapes, options, out overlapping logits; unsupported; device_failure).
MONGE_API void project(Context const& context, BatchView logits, MutableBatchView out,
                       ProjectionOptions const& options = {});

/// d_logits (B, n, m) = gradient of sum <d_out, out> in the logits, with out the result of project(). With a dustbin,
/// d_dustbin_score (B, float32; may be empty) gets the derivative of each matrix's term of the sum by dustbin_score.
MONGE_API void project_backward(Context const& context, BatchView logits, BatchView d_out, MutableBatchView d_logits,
                                ProjectionOptions const& options = {}, MutableVectorView d_dustbin_score = {});

/// The target sums of project() for logits of rows x columns; with a dustbin there is one more of each. Throws Error as
/// project() does.
struct ProjectionMarginals {
  std::vector<float> rows, columns;
};
MONGE_API ProjectionMarginals projection_marginals(Context const& context, int rows, int columns,
                                                   ProjectionOptions const& options = {});

/// The three maps of an mHC layer with S streams from one row of mixes per token (mHC, eq. 7 and 8):
///   pre  = sigmoid(scale_0 mixes[0:S] + base[0:S]) + pre_epsilon
///   post = post_factor sigmoid(scale_1 mixes[S:2S] + base[S:2S])
///   res  = projection(scale_2 mixes[2S:] + base[2S:]), S x S
struct MhcOptions {
  ProjectionOptions projection = projection_preset(ProjectionPreset::mhc_paper);  ///< No dustbin, start not positive.
  double pre_epsilon = 0;  ///< >= 0; DeepSeek's release has 1e-6.
  double post_factor = 2;  ///< > 0
};

/// mixes (T x S (S + 2), rows may be strided), scale (3), base (S (S + 2)) -> pre (T x S), post (T x S), res (T, S, S).
/// All float32, on the context's device. On CUDA 4 streams take one launch, others two.
MONGE_API void mhc_mapping(Context const& context, MatrixView mixes, VectorView scale, VectorView base,
                           MutableMatrixView pre, MutableMatrixView post, MutableBatchView res,
                           MhcOptions const& options = {});

/// Gradients in mixes, scale and base from those in pre, post and res. The sums over tokens are taken in a fixed order.
MONGE_API void mhc_mapping_backward(Context const& context, MatrixView mixes, VectorView scale, VectorView base,
                                    MatrixView d_pre, MatrixView d_post, BatchView d_res, MutableMatrixView d_mixes,
                                    MutableVectorView d_scale, MutableVectorView d_base,
                                    MhcOptions const& options = {});

}  // namespace monge
