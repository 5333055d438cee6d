// A group is the set of matrices that a thread works on together, one in each lane of a Pack. This file lays out its
// numbers and moves them between lanes and memory. linear-inl.hpp and log-inl.hpp have the arithmetic.
#if defined(MONGE_CPU_PROJECTION_GROUP) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_PROJECTION_GROUP
#undef MONGE_CPU_PROJECTION_GROUP
#else
#define MONGE_CPU_PROJECTION_GROUP
#endif

#include <algorithm>
#include <vector>

#include "core/numbers.hpp"
#include "cpu/projection/elements.hpp"
#include "cpu/projection/pack-inl.hpp"
#include "cpu/projection/range.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

/// An array of Packs in scratch memory.
struct Row {
  float* values = nullptr;
  HWY_INLINE Pack get(int i) const { return Load(values + i * kLanes); }
  HWY_INLINE void set(int i, Pack const& to) const { Store(to, values + i * kLanes); }
};

/// kSize Packs, in registers or on the stack; or, with kSize 0, a number known at run time, in scratch memory.
template <int kSize>
struct Packs {
  Pack value[kSize];
  HWY_INLINE void place(float*&, int) {}
  HWY_INLINE Pack get(int i) const { return value[i]; }
  HWY_INLINE void set(int i, Pack const& to) { value[i] = to; }
};
template <>
struct Packs<0> : Row {
  HWY_INLINE void place(float*& scratch, int size) {
    values = scratch;
    scratch += static_cast<std::ptrdiff_t>(size) * kLanes;
  }
};

/// The rows or the columns. Entry (i, j), with i of one axis and j of the other, is at
///   i * one.stride() + j * other.stride(),
/// so that one half-step serves both. kSize and kStride are 0 if the compiler does not know them.
template <int kSize, int kStride>
struct Axis {
  std::vector<float> const* marginals;
  Packs<kSize> scaling;  // u or v; in the log domain f or g.
  Packs<kSize> weight;   // Factor of the epsilon that is added to the sums.
  Packs<kSize> bar;      // Backward: gradient in the scaling.
  Packs<kSize> chain;    // Backward: gradient in the sum, through the weight that it makes.

  Axis(std::vector<float> const& given, int stride)
      : marginals(&given), size_(static_cast<int>(given.size())), stride_(stride) {}
  HWY_INLINE int size() const { return kSize > 0 ? kSize : size_; }
  HWY_INLINE int stride() const { return kStride > 0 ? kStride : stride_; }
  float marginal(int i) const { return (*marginals)[to_size(i)]; }

 private:
  int size_, stride_;
};

/// Matrices are kSize x kSize, or of any shape if kSize is 0.
template <int kSize>
struct Group {
  ProjectionRange const& range;
  ProjectionProblem const& problem;
  Axis<kSize, kSize> rows;
  Axis<kSize, kSize == 0 ? 0 : 1> columns;
  Packs<kSize * kSize> k;  // K, or the logits in the log domain.
  Row staging;             // A matrix between lanes and memory; in a half-step, results not yet accepted.
  Row shift;               // e^{-s}, s the shift of each row or column of the side that was shifted.
  Row d_k, d_out;          // Backward: gradients in k and in P.
  Row history;             // Backward: the scalings after every half-step.
  Pack done, count;        // done < 0: not yet within the tolerance. count: pairs of half-steps done.
  int pairs = 0;           // The largest count.

  HWY_INLINE Group(ProjectionRange const& given, bool backward)
      : range(given), problem(*given.problem), rows(problem.a, problem.columns), columns(problem.b, 1) {
    float* scratch = given.scratch;
    auto const place = [&](Row& row, int size) {
      Packs<0> packs;
      packs.place(scratch, size);
      row = packs;
    };
    int const n = rows.size(), m = columns.size();
    place(staging, std::max(n * m, 2 * std::max(n, m)));
    place(shift, std::max(n, m));
    k.place(scratch, n * m);
    rows.scaling.place(scratch, n);
    rows.weight.place(scratch, n);
    columns.scaling.place(scratch, m);
    columns.weight.place(scratch, m);
    if (!backward) return;
    place(d_k, n * m);
    place(d_out, n * m);
    rows.bar.place(scratch, n);
    rows.chain.place(scratch, n);
    columns.bar.place(scratch, m);
    columns.chain.place(scratch, m);
    history.values = scratch;
  }

  HWY_INLINE int entries() const { return rows.size() * columns.size(); }

  // The history holds the scalings in the order of the half-steps; the half-step that makes entry e reads entry e - 1.
  // Entry 0 holds the first scalings of the rows. Entry 1 holds those of the columns, after the leading column step if
  // there is one. Pair p makes entry 2 p + 2 (rows) and entry 2 p + 3 (columns).
  HWY_INLINE Row scalings(int entry) const {
    std::ptrdiff_t const packs = std::ptrdiff_t{entry / 2} * (rows.size() + columns.size());
    return {history.values + (packs + (entry % 2 == 0 ? 0 : rows.size())) * kLanes};
  }
  template <class Side>
  HWY_INLINE void remember(int entry, Side const& side) const {
    Row const row = scalings(entry);
    int const size = side.size();
    MONGE_UNROLL(4)
    for (int i = 0; i < size; ++i) row.set(i, side.scaling.get(i));
  }

  /// Reads the matrices from `first` on; lanes beyond the range get 0. With a dustbin the view may have fewer rows and
  /// columns than the matrices here.
  template <class To>
  MONGE_STEP void read(BatchView const& view, std::int64_t first, To& to) const {
    if (kSize == 4 && is_transposable(view, first)) {
      MONGE_EACH {
        D const four;
        float const* const from = static_cast<float const*>(view.data()) + (first + p * kVectorLanes) * 16;
        HWY_ALIGN float half[4][4 * kVectorLanes];  // [column][matrix][row]
        for (int block = 0; block < 4; ++block) {
          V c0, c1, c2, c3;
          hn::LoadInterleaved4(four, from + block * 4 * kVectorLanes, c0, c1, c2, c3);
          hn::Store(c0, four, half[0] + block * kVectorLanes);
          hn::Store(c1, four, half[1] + block * kVectorLanes);
          hn::Store(c2, four, half[2] + block * kVectorLanes);
          hn::Store(c3, four, half[3] + block * kVectorLanes);
        }
        for (int j = 0; j < 4; ++j) {
          V r0, r1, r2, r3;
          hn::LoadInterleaved4(four, half[j], r0, r1, r2, r3);
          V const column[4] = {r0, r1, r2, r3};
          for (int i = 0; i < 4; ++i)
            hn::Store(column[i], four, staging.values + (i * 4 + j) * kLanes + p * kVectorLanes);
        }
      }
    } else {
      std::int64_t const count = lanes(first);
      for (int i = 0; i < view.rows(); ++i) {
        for (int j = 0; j < view.columns(); ++j) {
          float* const to_lanes = staging.values + (i * columns.size() + j) * kLanes;
          std::int64_t at = first * view.batch_stride() + i * view.row_stride() + j;
          for (std::int64_t t = 0; t < count; ++t, at += view.batch_stride())
            to_lanes[t] = load_element(view.data(), view.type(), at);
          for (std::int64_t t = count; t < kLanes; ++t) to_lanes[t] = 0;
        }
      }
    }
    for (int i = 0; i < view.rows(); ++i)
      for (int j = 0; j < view.columns(); ++j) to.set(i * columns.size() + j, staging.get(i * columns.size() + j));
  }

  /// Writes the staging memory to the matrices from `first` on.
  MONGE_STEP void write(MutableBatchView const& view, std::int64_t first) const {
    if (kSize == 4 && is_transposable(view, first)) {
      MONGE_EACH {
        D const four;
        float* const to = static_cast<float*>(view.data()) + (first + p * kVectorLanes) * 16;
        HWY_ALIGN float half[4][4 * kVectorLanes];
        for (int j = 0; j < 4; ++j) {
          float const* const at = staging.values + j * kLanes + p * kVectorLanes;
          hn::StoreInterleaved4(hn::Load(four, at), hn::Load(four, at + 4 * kLanes), hn::Load(four, at + 8 * kLanes),
                                hn::Load(four, at + 12 * kLanes), four, half[j]);
        }
        for (int block = 0; block < 4; ++block) {
          int const at = block * kVectorLanes;
          hn::StoreInterleaved4(hn::Load(four, half[0] + at), hn::Load(four, half[1] + at),
                                hn::Load(four, half[2] + at), hn::Load(four, half[3] + at), four, to + 4 * at);
        }
      }
      return;
    }
    std::int64_t const count = lanes(first);
    for (int i = 0; i < view.rows(); ++i) {
      for (int j = 0; j < view.columns(); ++j) {
        float const* const from = staging.values + (i * columns.size() + j) * kLanes;
        std::int64_t at = first * view.batch_stride() + i * view.row_stride() + j;
        for (std::int64_t t = 0; t < count; ++t, at += view.batch_stride())
          store_element(view.data(), view.type(), at, from[t]);
      }
    }
  }

  /// The number of matrices of the range in the group that begins at `first`.
  HWY_INLINE std::int64_t lanes(std::int64_t first) const { return std::min<std::int64_t>(kLanes, range.last - first); }

  /// Sets k = logits / temperature, or the given matrix plus epsilon. The first scalings are neutral.
  MONGE_STEP void load(std::int64_t first, float neutral_scaling) {
    read(range.logits, first, k);
    int const n = rows.size(), m = columns.size();
    if (problem.dustbin()) {
      for (int i = 0; i < n; ++i) k.set(i * m + m - 1, Set(problem.dustbin_score));
      for (int j = 0; j < m; ++j) k.set((n - 1) * m + j, Set(problem.dustbin_score));
    }
    for (int i = 0; i < n; ++i) rows.scaling.set(i, Set(neutral_scaling));
    for (int j = 0; j < m; ++j) columns.scaling.set(j, Set(neutral_scaling));
    done = Set(-1);
    count = Set(0);
    bool const positive = problem.start == ProjectionStart::positive;
    Pack const factor = Set(problem.inverse_temperature), eps = Set(problem.matrix_epsilon);
    MONGE_UNROLL(16)
    for (int e = 0; e < n * m; ++e) k.set(e, positive ? Add(k.get(e), eps) : Mul(k.get(e), factor));
  }

 private:
  template <class View>
  HWY_INLINE bool is_transposable(View const& view, std::int64_t first) const {
    return lanes(first) == kLanes && view.type() == DataType::float32 && view.row_stride() == 4 &&
           view.batch_stride() == 16;
  }
};

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
