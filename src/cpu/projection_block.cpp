// Batched projection: one matrix per SIMD lane, so that every step is the same arithmetic on all lanes and a matrix
// never meets its neighbours. Two vectors of matrices go together, to hide the latency of the chain of half-steps.
// Highway compiles this file once for each instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/projection_block.cpp"
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/projection_block.hpp"
#include "cpu/projection_elements.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr int kVectors = 2;
inline constexpr int kVectorLanes = static_cast<int>(hn::MaxLanes(D()));
inline constexpr int kLanes = kVectors * kVectorLanes;

/// kLanes floats.
struct Pack {
  V x[kVectors];
};

#define MONGE_EACH HWY_UNROLL(4) for (int p = 0; p < kVectors; ++p)
HWY_INLINE Pack Set(float value) {
  Pack r;
  MONGE_EACH r.x[p] = hn::Set(D(), value);
  return r;
}
HWY_INLINE Pack Load(float const* from) {
  Pack r;
  MONGE_EACH r.x[p] = hn::Load(D(), from + p * kVectorLanes);
  return r;
}
HWY_INLINE void Store(Pack const& a, float* to) {
  MONGE_EACH hn::Store(a.x[p], D(), to + p * kVectorLanes);
}
HWY_INLINE Pack Add(Pack const& a, Pack const& b) {
  Pack r;
  MONGE_EACH r.x[p] = hn::Add(a.x[p], b.x[p]);
  return r;
}
HWY_INLINE Pack Sub(Pack const& a, Pack const& b) {
  Pack r;
  MONGE_EACH r.x[p] = hn::Sub(a.x[p], b.x[p]);
  return r;
}
HWY_INLINE Pack Mul(Pack const& a, Pack const& b) {
  Pack r;
  MONGE_EACH r.x[p] = hn::Mul(a.x[p], b.x[p]);
  return r;
}
HWY_INLINE Pack MulAdd(Pack const& a, Pack const& b, Pack const& c) {
  Pack r;
  MONGE_EACH r.x[p] = hn::MulAdd(a.x[p], b.x[p], c.x[p]);
  return r;
}
/// c - a b.
HWY_INLINE Pack NegMulAdd(Pack const& a, Pack const& b, Pack const& c) {
  Pack r;
  MONGE_EACH r.x[p] = hn::NegMulAdd(a.x[p], b.x[p], c.x[p]);
  return r;
}
/// The larger one, and NaN only if `a` is: IfThenElse instead of Max, whose operand order differs between machines.
HWY_INLINE Pack Larger(Pack const& a, Pack const& b) {
  Pack r;
  MONGE_EACH r.x[p] = hn::IfThenElse(hn::Lt(a.x[p], b.x[p]), b.x[p], a.x[p]);
  return r;
}
HWY_INLINE Pack Abs(Pack const& a) {
  Pack r;
  MONGE_EACH r.x[p] = hn::Abs(a.x[p]);
  return r;
}
/// 1 / a to about one unit in the last place.
HWY_INLINE Pack Reciprocal(Pack const& a) {
  Pack r;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  MONGE_EACH {  // 14 bits, doubled by one Newton step
    V const guess = hn::ApproximateReciprocal(a.x[p]);
    r.x[p] = hn::MulAdd(guess, hn::NegMulAdd(a.x[p], guess, hn::Set(D(), 1.0f)), guess);
  }
#else
  MONGE_EACH r.x[p] = hn::Div(hn::Set(D(), 1.0f), a.x[p]);
#endif
  return r;
}
/// Where a < b: x, else y.
HWY_INLINE Pack SelectLess(Pack const& a, Pack const& b, Pack const& x, Pack const& y) {
  Pack r;
  MONGE_EACH r.x[p] = hn::IfThenElse(hn::Lt(a.x[p], b.x[p]), x.x[p], y.x[p]);
  return r;
}
HWY_INLINE bool AnyLess(Pack const& a, Pack const& b) {
  bool any = false;
  MONGE_EACH any = any || !hn::AllFalse(D(), hn::Lt(a.x[p], b.x[p]));
  return any;
}

/// e^x with the argument reduced in two parts, so that the error stays at the last place for all |x| < 87; 0 below.
HWY_INLINE Pack Exp(Pack const& a) {
  constexpr float kCoefficients[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                     4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  D const d;
  hn::RebindToSigned<D> const di;
  Pack r;
  MONGE_EACH {
    V const x = hn::Min(a.x[p], hn::Set(d, 88.7f));
    V const magic = hn::Set(d, 12582912.0f);
    V const shifted = hn::MulAdd(hn::Max(x, hn::Set(d, -87.3f)), hn::Set(d, 1.44269504f), magic);
    V const k = hn::Sub(shifted, magic);
    V f = hn::NegMulAdd(k, hn::Set(d, 0.693359375f), x);
    f = hn::NegMulAdd(k, hn::Set(d, -2.12194440e-4f), f);
    V y = hn::Set(d, kCoefficients[0]);
    HWY_UNROLL(8)
    for (int c = 1; c < 6; ++c) y = hn::MulAdd(y, f, hn::Set(d, kCoefficients[c]));
    y = hn::Add(hn::MulAdd(y, hn::Mul(f, f), f), hn::Set(d, 1.0f));
    y = hn::BitCast(d, hn::Add(hn::BitCast(di, y), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
    y = hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Zero(d), y);
    r.x[p] = hn::IfThenElse(hn::Eq(a.x[p], a.x[p]), y, a.x[p]);
  }
  return r;
}

/// Natural logarithm of a normal positive number.
HWY_INLINE Pack Log(Pack const& a) {
  constexpr float kCoefficients[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                                     -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                                     2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
  D const d;
  hn::RebindToSigned<D> const di;
  Pack r;
  MONGE_EACH {
    auto const bits = hn::BitCast(di, a.x[p]);
    // Mantissa in [sqrt(1/2), sqrt(2)).
    auto const exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
    V const mantissa = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
    V const k = hn::ConvertTo(d, exponent);
    V const x = hn::Sub(mantissa, hn::Set(d, 1.0f));
    V const z = hn::Mul(x, x);
    V y = hn::Set(d, kCoefficients[0]);
    HWY_UNROLL(16)
    for (int c = 1; c < 9; ++c) y = hn::MulAdd(y, x, hn::Set(d, kCoefficients[c]));
    y = hn::Mul(hn::Mul(x, z), y);
    y = hn::MulAdd(k, hn::Set(d, -2.12194440e-4f), y);
    y = hn::NegMulAdd(hn::Set(d, 0.5f), z, y);
    y = hn::Add(x, y);
    y = hn::MulAdd(k, hn::Set(d, 0.693359375f), y);
    r.x[p] = hn::IfThenElse(hn::Eq(a.x[p], a.x[p]), y, a.x[p]);
  }
  return r;
}

/// Numbers of kSize known at compile time stay in registers or on the stack; those of kSize 0 in scratch memory.
template <int kSize>
struct Packs {
  Pack value[kSize];
  HWY_INLINE void place(float*&, std::size_t) {}
  HWY_INLINE Pack get(int i) const { return value[i]; }
  HWY_INLINE void set(int i, Pack const& to) { value[i] = to; }
};
template <>
struct Packs<0> {
  float* value = nullptr;
  HWY_INLINE void place(float*& scratch, std::size_t size) {
    value = scratch;
    scratch += size * kLanes;
  }
  HWY_INLINE Pack get(int i) const { return Load(value + i * kLanes); }
  HWY_INLINE void set(int i, Pack const& to) { Store(to, value + i * kLanes); }
};

inline constexpr float kLeast =
    1e-37f;  // Of a sum: the scaling of a row without mass is finite, so its products with 0 are 0.
inline constexpr float kNoLogit = -1e30f;  // Least shift, for rows of -inf.

/// Everything one group of matrices needs. kSize: rows = columns = kSize, or 0 for any. kPlain: linear domain, no
/// epsilon in the sums, unit marginals, no tolerance.
template <int kSize, bool kPlain>
struct Group {
  ProjectionRange const& range;
  ProjectionProblem const& problem;
  int const n, m;
  Packs<kSize * kSize> k;  // exp of the logits with its shift; in the log domain the logits
  Packs<kSize> u, w;       // scalings (log domain: potentials); w is what eps is multiplied by
  Packs<kSize> v, z;       // the same for columns
  Packs<0> history;        // pair p: v before it, u after it; u < 0 marks a clamped sum, and so does v
  Packs<0> d, g;           // backward: gradient in K; d_out
  Packs<kSize> ub, vb, row_chain, column_chain;
  Packs<0> first_shift;  // of the first side: e^{-s}
  Pack done, count;      // done < 0: not yet
  bool const clamp, scaling;

  HWY_INLINE Group(ProjectionRange const& r, bool backward)
      : range(r),
        problem(*r.problem),
        n(kSize > 0 ? kSize : problem.rows),
        m(kSize > 0 ? kSize : problem.columns),
        clamp(problem.epsilon_mode == EpsilonMode::clamp),
        scaling(problem.epsilon_mode == EpsilonMode::scaling) {
    float* scratch = r.scratch;
    auto const rows = static_cast<std::size_t>(n), columns = static_cast<std::size_t>(m);
    staging_ = scratch;
    scratch += std::max(rows * columns, 2 * std::max(rows, columns)) * kLanes;
    k.place(scratch, rows * columns);
    u.place(scratch, rows);
    w.place(scratch, rows);
    v.place(scratch, columns);
    z.place(scratch, columns);
    first_shift.place(scratch, std::max(rows, columns));
    if (!backward) return;
    d.place(scratch, rows * columns);
    g.place(scratch, rows * columns);
    ub.place(scratch, rows);
    vb.place(scratch, columns);
    row_chain.place(scratch, rows);
    column_chain.place(scratch, columns);
    history.place(scratch, (rows + columns) * static_cast<std::size_t>(problem.pairs));
  }

  float a(int i) const { return problem.a[static_cast<std::size_t>(i)]; }
  float b(int j) const { return problem.b[static_cast<std::size_t>(j)]; }
  static float inverse(float x) { return x > 0 ? 1 / x : 0; }

  // Reads matrices from `first` on into to[i * m + j], lanes beyond the range as 0.
  template <class To>
  HWY_INLINE void Read(BatchView const& view, std::int64_t first, int rows, int columns, To& to) {
    std::int64_t const count = std::min<std::int64_t>(kLanes, range.last - first);
    if (kSize == 4 && count == kLanes && view.type() == ElementType::float32 && view.row_stride() == 4 &&
        view.batch_stride() == 16) {
      D const d4;
      MONGE_EACH {
        float const* from = static_cast<float const*>(view.data()) + (first + p * kVectorLanes) * 16;
        HWY_ALIGN float half[4][4 * kVectorLanes];  // [column][matrix][row]
        for (int block = 0; block < 4; ++block) {
          V c0, c1, c2, c3;
          hn::LoadInterleaved4(d4, from + block * 4 * kVectorLanes, c0, c1, c2, c3);
          hn::Store(c0, d4, half[0] + block * kVectorLanes);
          hn::Store(c1, d4, half[1] + block * kVectorLanes);
          hn::Store(c2, d4, half[2] + block * kVectorLanes);
          hn::Store(c3, d4, half[3] + block * kVectorLanes);
        }
        for (int j = 0; j < 4; ++j) {
          V r0, r1, r2, r3;
          hn::LoadInterleaved4(d4, half[j], r0, r1, r2, r3);
          V const rows4[4] = {r0, r1, r2, r3};
          for (int i = 0; i < 4; ++i) hn::Store(rows4[i], d4, staging_ + (i * 4 + j) * kLanes + p * kVectorLanes);
        }
      }
    } else {
      ElementType const type = view.type();
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          float* const lanes = staging_ + (i * m + j) * kLanes;
          std::int64_t at = first * view.batch_stride() + i * view.row_stride() + j;
          for (std::int64_t t = 0; t < count; ++t, at += view.batch_stride())
            lanes[t] = load_element(view.data(), type, at);
          for (std::int64_t t = count; t < kLanes; ++t) lanes[t] = 0;
        }
      }
    }
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < columns; ++j) to.set(i * m + j, Load(staging_ + (i * m + j) * kLanes));
  }

  // Writes element (i, j) = staging.
  HWY_INLINE void Write(MutableBatchView const& view, std::int64_t first, int rows, int columns) {
    std::int64_t const count = std::min<std::int64_t>(kLanes, range.last - first);
    if (kSize == 4 && count == kLanes && view.type() == ElementType::float32 && view.row_stride() == 4 &&
        view.batch_stride() == 16) {
      D const d4;
      MONGE_EACH {
        float* to = static_cast<float*>(view.data()) + (first + p * kVectorLanes) * 16;
        HWY_ALIGN float half[4][4 * kVectorLanes];
        for (int j = 0; j < 4; ++j) {
          float const* at = staging_ + j * kLanes + p * kVectorLanes;
          hn::StoreInterleaved4(hn::Load(d4, at), hn::Load(d4, at + 4 * kLanes), hn::Load(d4, at + 8 * kLanes),
                                hn::Load(d4, at + 12 * kLanes), d4, half[j]);
        }
        for (int block = 0; block < 4; ++block) {
          int const at = block * kVectorLanes;
          hn::StoreInterleaved4(hn::Load(d4, half[0] + at), hn::Load(d4, half[1] + at), hn::Load(d4, half[2] + at),
                                hn::Load(d4, half[3] + at), d4, to + 4 * at);
        }
      }
      return;
    }
    ElementType const type = view.type();
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < columns; ++j) {
        float const* const lanes = staging_ + (i * m + j) * kLanes;
        std::int64_t at = first * view.batch_stride() + i * view.row_stride() + j;
        for (std::int64_t t = 0; t < count; ++t, at += view.batch_stride())
          store_element(view.data(), type, at, lanes[t]);
      }
    }
  }

  HWY_INLINE void Start(std::int64_t first) {
    Read(range.logits, first, problem.logit_rows, problem.logit_columns, k);
    Pack const inverse_temperature = Set(problem.inverse_temperature);
    if (problem.dustbin()) {
      for (int i = 0; i < n; ++i) k.set(i * m + m - 1, Set(problem.dustbin_score));
      for (int j = 0; j < m; ++j) k.set((n - 1) * m + j, Set(problem.dustbin_score));
    }
    bool const positive = problem.start == ProjectionStart::positive;
    bool const softmax = problem.start == ProjectionStart::softmax;
    for (int i = 0; i < n; ++i) u.set(i, Set(problem.log_domain ? 0 : 1));
    for (int j = 0; j < m; ++j) v.set(j, Set(problem.log_domain ? 0 : 1));
    if constexpr (!kPlain) {
      for (int i = 0; i < n; ++i) w.set(i, Set(1));
      for (int j = 0; j < m; ++j) z.set(j, Set(1));
      done = Set(-1);
      count = Set(0);
    }
    if (positive) {
      Pack const eps = Set(problem.matrix_epsilon);
      HWY_UNROLL(16)
      for (int e = 0; e < n * m; ++e) {
        Pack const value = Add(k.get(e), eps);
        k.set(e, problem.log_domain ? SelectLess(Set(0), value, Log(value), Add(value, Set(-1e38f))) : value);
      }
      return;
    }
    HWY_UNROLL(16)
    for (int e = 0; e < n * m; ++e) k.set(e, Mul(k.get(e), inverse_temperature));
    if (problem.log_domain && !softmax) return;

    // A row's or a column's largest. Where eps is relative to e^{-s}, s is kept from making that overflow.
    bool const columns = problem.start == ProjectionStart::exp && problem.columns_first;
    bool const keeps_scale =
        problem.start == ProjectionStart::exp && (problem.epsilon > 0 || problem.matrix_epsilon > 0);
    Pack const least = Set(keeps_scale ? -40.0f : kNoLogit);
    auto const one_side = [&](int size, int other_size, int stride, int other_stride, auto& weight) {
      HWY_UNROLL(4)
      for (int i = 0; i < size; ++i) {
        Pack largest = least;
        HWY_UNROLL(4)
        for (int j = 0; j < other_size; ++j) {
          Pack const x = k.get(i * stride + j * other_stride);
          largest = Larger(largest, x);  // x = NaN: kept out here, and comes back through the difference
        }
        Pack const scale = keeps_scale ? Exp(Sub(Set(0), largest)) : Set(1);
        Pack const eps = Mul(Set(problem.matrix_epsilon), scale);
        if (!softmax) {
          HWY_UNROLL(4)
          for (int j = 0; j < other_size; ++j) {
            int const e = i * stride + j * other_stride;
            k.set(e, Add(Exp(Sub(k.get(e), largest)), eps));
          }
        } else {
          Pack sum = Set(kLeast);
          for (int j = 0; j < other_size; ++j) sum = Add(sum, Exp(Sub(k.get(i * stride + j), largest)));
          if (problem.log_domain) {
            Pack const lse = Add(largest, Log(sum));
            for (int j = 0; j < other_size; ++j) k.set(i * stride + j, Sub(k.get(i * stride + j), lse));
          } else {
            Pack const factor = Reciprocal(sum);
            for (int j = 0; j < other_size; ++j) {
              int const e = i * stride + j;
              k.set(e, MulAdd(Exp(Sub(k.get(e), largest)), factor, eps));
            }
          }
        }
        if constexpr (!kPlain) {
          if (keeps_scale) weight.set(i, scale);
        }
        if (problem.matrix_epsilon > 0) first_shift.set(i, scale);
      }
    };
    if (columns) {
      one_side(m, n, 1, m, z);
    } else {
      one_side(n, m, m, 1, w);
    }
  }

  // One side's half-step. `out` and `weight` of this side, `in` of the other. Strides make k this side's row-major.
  template <class Out, class In>
  HWY_INLINE void Step(int size, int other_size, int stride, int other_stride, std::vector<float> const& marginal,
                       Out& out, Out& weight, In const& in, bool check) {
    if constexpr (kPlain) {
      HWY_UNROLL(4)
      for (int i = 0; i < size; ++i) {
        Pack q = MulAdd(k.get(i * stride), in.get(0), Set(kLeast));
        HWY_UNROLL(4)
        for (int j = 1; j < other_size; ++j) q = MulAdd(k.get(i * stride + j * other_stride), in.get(j), q);
        out.set(i, Reciprocal(q));
      }
    } else {
      // With a check the sums must be known before anything changes: they wait in the staging memory.
      Pack error = Set(0);
      for (int i = 0; i < size; ++i) {
        float const target = marginal[static_cast<std::size_t>(i)];
        Pack next;
        if (problem.log_domain) {
          Pack largest = Set(kNoLogit);
          for (int j = 0; j < other_size; ++j)
            largest = Larger(largest, Add(k.get(i * stride + j * other_stride), in.get(j)));
          Pack sum = Set(0);
          for (int j = 0; j < other_size; ++j)
            sum = Add(sum, Exp(Sub(Add(k.get(i * stride + j * other_stride), in.get(j)), largest)));
          next = Sub(Sub(Set(std::log(target)), largest), Log(Add(sum, Set(kLeast))));
          if (check && target > 0) error = Larger(Abs(Sub(Exp(Sub(out.get(i), next)), Set(1))), error);
        } else {
          Pack dot = Set(kLeast);
          for (int j = 0; j < other_size; ++j)
            dot = MulAdd(k.get(i * stride + j * other_stride), Unmarked(in.get(j)), dot);
          if (check && target > 0)
            error = Larger(Abs(Sub(Mul(Mul(dot, Unmarked(out.get(i))), Set(1 / target)), Set(1))), error);
          Pack const e = Mul(Set(problem.epsilon), weight.get(i));
          Pack const q = clamp ? Larger(dot, e) : Add(dot, e);
          next = Mul(Set(target), Reciprocal(q));
          if (!scaling) {
            Pack const inverse_target = Set(inverse(target));
            Store(Mul(q, inverse_target), staging_ + (size + i) * kLanes);
          }
          if (clamp) next = SelectLess(dot, e, Sub(Set(0), next), next);
        }
        Store(next, staging_ + i * kLanes);
      }
      if (check) done = SelectLess(error, Set(std::nextafter(problem.tolerance, 1e30f)), Set(1), done);
      for (int i = 0; i < size; ++i) {
        out.set(i, SelectLess(done, Set(0), Load(staging_ + i * kLanes), out.get(i)));
        if (!problem.log_domain && !scaling)
          weight.set(i, SelectLess(done, Set(0), Load(staging_ + (size + i) * kLanes), weight.get(i)));
      }
    }
  }

  // A scaling whose sum was clamped is marked by its sign.
  HWY_INLINE Pack Unmarked(Pack const& value) const { return !kPlain && clamp ? Abs(value) : value; }

  HWY_INLINE void RowStep(bool check) { Step(n, m, m, 1, problem.a, u, w, v, check); }
  HWY_INLINE void ColumnStep(bool check) { Step(m, n, 1, m, problem.b, v, z, u, check); }

  template <bool kKeep>
  HWY_INLINE void Iterate() {
    bool const checks = !kPlain && problem.tolerance > 0;
    if (problem.lead) ColumnStep(false);
    for (int pair = 0; pair < problem.pairs; ++pair) {
      int const slot = pair * (n + m);
      if constexpr (kKeep) {
        HWY_UNROLL(4)
        for (int j = 0; j < m; ++j) history.set(slot + j, v.get(j));
      }
      RowStep(checks && !problem.columns_first && (pair > 0 || problem.lead));
      if constexpr (kKeep) {
        HWY_UNROLL(4)
        for (int i = 0; i < n; ++i) history.set(slot + m + i, u.get(i));
      }
      ColumnStep(checks && problem.columns_first);
      if constexpr (!kPlain) {
        count = SelectLess(done, Set(0), Add(count, Set(1)), count);
        if (checks && !AnyLess(done, Set(0))) break;
      }
    }
    if (problem.trail) RowStep(false);
  }

  HWY_INLINE Pack Entry(int i, int j) const {
    Pack const logit = k.get(i * m + j);
    if (!kPlain && problem.log_domain) return Exp(Add(Add(logit, u.get(i)), v.get(j)));
    return Mul(Mul(Unmarked(u.get(i)), logit), Unmarked(v.get(j)));
  }

  HWY_INLINE void Forward(std::int64_t first) {
    Start(first);
    Iterate<false>();
    HWY_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < m; ++j) Store(Entry(i, j), staging_ + (i * m + j) * kLanes);
    }
    Write(range.result, first, n, m);
  }

  // From the gradient `bar` in a side's new scaling to that in its sum; `mark` < 0: the sum was clamped. A lane that
  // did not take the step (`active` >= 0) gets 0.
  HWY_INLINE Pack SumGradient(Pack const& bar, Pack const& mark, float marginal, Pack& chain, Pack const& active) {
    Pack const scaling_value = Unmarked(mark);
    Pack q = Sub(Set(0), Mul(Mul(bar, scaling_value), scaling_value));
    if constexpr (kPlain) {
      return q;
    } else {
      q = Add(Mul(q, Set(inverse(marginal))), chain);
      Pack const into_weight = Mul(q, Set(problem.epsilon * inverse(marginal)));
      Pack const zero = Set(0);
      Pack r = q, next_chain = scaling ? zero : into_weight;
      if (clamp) {
        r = SelectLess(mark, zero, zero, q);
        next_chain = SelectLess(mark, zero, into_weight, zero);
      }
      chain = SelectLess(active, zero, next_chain, chain);
      return SelectLess(active, zero, r, zero);
    }
  }

  // active < 0 where the step is part of the lane's history. cu, cv: this step's own scalings, other side's as used.
  template <class CU, class CV>
  HWY_INLINE void ColumnBack(CV const& own, CU const& other, Pack const& active) {
    if (!kPlain && problem.log_domain) {
      for (int j = 0; j < m; ++j) {
        if (b(j) <= 0) continue;
        Pack const bar = SelectLess(active, Set(0), vb.get(j), Set(0));
        Pack const factor = Mul(bar, Set(1 / b(j)));
        for (int i = 0; i < n; ++i) {
          Pack const flow = Mul(factor, Exp(Add(Add(k.get(i * m + j), other.get(i)), own.get(j))));
          d.set(i * m + j, Sub(d.get(i * m + j), flow));
          ub.set(i, Sub(ub.get(i), flow));
        }
        vb.set(j, Sub(vb.get(j), bar));
      }
      return;
    }
    HWY_UNROLL(4)
    for (int j = 0; j < m; ++j) {
      Pack chain = kPlain ? Set(0) : column_chain.get(j);
      Pack const s = SumGradient(vb.get(j), own.get(j), b(j), chain, active);
      if constexpr (!kPlain) {
        column_chain.set(j, chain);
        vb.set(j, SelectLess(active, Set(0), Set(0), vb.get(j)));
      }
      HWY_UNROLL(4)
      for (int i = 0; i < n; ++i) {
        Pack const used = Unmarked(other.get(i));
        d.set(i * m + j, MulAdd(s, used, d.get(i * m + j)));
        ub.set(i, MulAdd(s, k.get(i * m + j), ub.get(i)));
      }
    }
    if constexpr (kPlain) {
      for (int j = 0; j < m; ++j) vb.set(j, Set(0));
    }
  }
  template <class CU, class CV>
  HWY_INLINE void RowBack(CU const& own, CV const& other, Pack const& active) {
    if (!kPlain && problem.log_domain) {
      for (int i = 0; i < n; ++i) {
        if (a(i) <= 0) continue;
        Pack const bar = SelectLess(active, Set(0), ub.get(i), Set(0));
        Pack const factor = Mul(bar, Set(1 / a(i)));
        for (int j = 0; j < m; ++j) {
          Pack const flow = Mul(factor, Exp(Add(Add(k.get(i * m + j), other.get(j)), own.get(i))));
          d.set(i * m + j, Sub(d.get(i * m + j), flow));
          vb.set(j, Sub(vb.get(j), flow));
        }
        ub.set(i, Sub(ub.get(i), bar));
      }
      return;
    }
    HWY_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      Pack chain = kPlain ? Set(0) : row_chain.get(i);
      Pack const r = SumGradient(ub.get(i), own.get(i), a(i), chain, active);
      if constexpr (kPlain) {
        ub.set(i, Set(0));
      } else {
        row_chain.set(i, chain);
        ub.set(i, SelectLess(active, Set(0), Set(0), ub.get(i)));
      }
      HWY_UNROLL(4)
      for (int j = 0; j < m; ++j) {
        Pack const used = Unmarked(other.get(j));
        d.set(i * m + j, MulAdd(r, used, d.get(i * m + j)));
        vb.set(j, MulAdd(r, k.get(i * m + j), vb.get(j)));
      }
    }
  }

  struct Slot {
    Packs<0> const& history;
    int offset;
    HWY_INLINE Pack get(int i) const { return history.get(offset + i); }
  };
  struct Ones {
    HWY_INLINE Pack get(int) const { return Set(1); }
  };
  struct Zeros {
    HWY_INLINE Pack get(int) const { return Set(0); }
  };
  // The column scalings after pair p: the next slot's, or the last ones where the lane stopped there.
  struct After {
    Packs<0> const& history;
    Packs<kSize> const& last;
    int offset;
    Pack stopped_here;
    HWY_INLINE Pack get(int j) const {
      if (kPlain) return history.get(offset + j);
      return SelectLess(stopped_here, Set(0), last.get(j), history.get(offset + j));
    }
  };

  HWY_INLINE void Backward(std::int64_t first) {
    Start(first);
    Iterate<true>();
    bool const log_domain = !kPlain && problem.log_domain;
    if (range.gradient.rows() == n) Read(range.gradient, first, n, m, g);
    Pack const always = Set(-1), zero = Set(0);
    for (int i = 0; i < n; ++i) ub.set(i, zero);
    for (int j = 0; j < m; ++j) vb.set(j, zero);
    if constexpr (!kPlain) {
      for (int i = 0; i < n; ++i) row_chain.set(i, zero);
      for (int j = 0; j < m; ++j) column_chain.set(j, zero);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < m; ++j) {
        int const e = i * m + j;
        if (log_domain) {
          Pack const flow = Mul(g.get(e), Entry(i, j));
          d.set(e, flow);
          ub.set(i, Add(ub.get(i), flow));
          vb.set(j, Add(vb.get(j), flow));
        } else {
          Pack const ui = Unmarked(u.get(i)), vj = Unmarked(v.get(j));
          Pack const gk = Mul(g.get(e), k.get(e));
          d.set(e, Mul(g.get(e), Mul(ui, vj)));
          ub.set(i, MulAdd(gk, vj, ub.get(i)));
          vb.set(j, MulAdd(gk, ui, vb.get(j)));
        }
      }
    }
    bool fixed = false;
    if constexpr (!kPlain) fixed = problem.implicit && Implicit();
    if (!fixed) Unrolled(always);
    Finish(first);
  }

  HWY_INLINE void Unrolled(Pack const& always) {
    if (problem.trail) RowBack(u, v, always);
    int pairs = problem.pairs;
    if constexpr (!kPlain) {
      HWY_ALIGN float counts[kLanes];
      Store(count, counts);
      pairs = static_cast<int>(*std::max_element(counts, counts + kLanes));
    }
    for (int pair = pairs - 1; pair >= 0; --pair) {
      int const slot = pair * (n + m);
      Slot const before{history, slot}, own_u{history, slot + m};
      if constexpr (kPlain) {
        if (pair == pairs - 1) {
          ColumnBack(v, own_u, always);
        } else {
          ColumnBack(Slot{history, slot + n + m}, own_u, always);
        }
        RowBack(own_u, before, always);
      } else {
        Pack const active = Sub(Set(static_cast<float>(pair)), count);  // < 0: pair < count
        Pack const stopped_here = Sub(Sub(count, Set(static_cast<float>(pair))), Set(1.5f));
        bool const last = pair == problem.pairs - 1;
        ColumnBack(After{history, v, last ? slot : slot + n + m, last ? Set(-1) : stopped_here}, own_u, active);
        RowBack(own_u, before, active);
      }
    }
    if (!problem.lead) return;
    if (problem.pairs == 0) {
      LeadBack(v, always);
    } else if (kPlain) {
      LeadBack(Slot{history, 0}, always);
    } else {
      LeadBack(After{history, v, 0, Sub(count, Set(0.5f))}, always);
    }
  }
  template <class CV>
  HWY_INLINE void LeadBack(CV const& own, Pack const& always) {
    if (!kPlain && problem.log_domain) {
      ColumnBack(own, Zeros(), always);
    } else {
      ColumnBack(own, Ones(), always);
    }
  }

  // The gradient of the limit: the same recursion with the last scalings for all steps, until it has died out. False,
  // and nothing done, unless the first side's sums are right in every lane.
  bool Implicit() {
    Pack error = Set(0);
    bool const rows = !problem.columns_first;
    for (int i = 0; i < (rows ? n : m); ++i) {
      Pack sum = Set(0);
      for (int j = 0; j < (rows ? m : n); ++j) sum = Add(sum, rows ? Entry(i, j) : Entry(j, i));
      float const target = rows ? a(i) : b(i);
      if (target > 0) error = Larger(Abs(Sub(Mul(sum, Set(1 / target)), Set(1))), error);
    }
    HWY_ALIGN float errors[kLanes];
    Store(error, errors);
    for (float& e : errors) e = e <= problem.implicit_tolerance ? -1.0f : 1.0f;
    Pack const good = Load(errors);
    Pack const always = Set(-1);
    if (AnyLess(Set(0), good)) {  // Some lanes take the unrolled gradient: keep those aside.
      Packs<0> saved;
      float* at = saved_memory();
      saved.place(at, static_cast<std::size_t>(n * m + n + m));
      for (int e = 0; e < n * m; ++e) saved.set(e, d.get(e));
      for (int i = 0; i < n; ++i) saved.set(n * m + i, ub.get(i));
      for (int j = 0; j < m; ++j) saved.set(n * m + n + j, vb.get(j));
      Unrolled(always);
      for (int e = 0; e < n * m; ++e) {
        Pack const unrolled = d.get(e);
        d.set(e, saved.get(e));
        saved.set(e, unrolled);
      }
      for (int i = 0; i < n; ++i) ub.set(i, saved.get(n * m + i));
      for (int j = 0; j < m; ++j) vb.set(j, saved.get(n * m + n + j));
      for (int i = 0; i < n; ++i) row_chain.set(i, Set(0));
      for (int j = 0; j < m; ++j) column_chain.set(j, Set(0));
      Recur(good);
      for (int e = 0; e < n * m; ++e) d.set(e, SelectLess(good, Set(0), d.get(e), saved.get(e)));
    } else {
      Recur(good);
    }
    return true;
  }
  void Recur(Pack const& good) {
    Pack active = good;
    Pack const always = Set(-1);
    if (problem.trail) RowBack(u, v, always);
    for (int i = 0; i < n; ++i) row_chain.set(i, Set(0));
    int const most = 10 * (problem.pairs + 1) + 100;
    for (int step = 0; step < most && AnyLess(active, Set(0)); ++step) {
      Pack before = Set(0), after = Set(0);
      for (int e = 0; e < n * m; ++e)
        before = Larger(Abs(Mul(d.get(e), problem.log_domain ? Set(1) : k.get(e))), before);
      ColumnBack(v, u, active);
      RowBack(u, v, active);
      for (int i = 0; i < n; ++i) row_chain.set(i, Set(0));
      for (int j = 0; j < m; ++j) column_chain.set(j, Set(0));
      for (int j = 0; j < m; ++j) after = Larger(Abs(problem.log_domain ? vb.get(j) : Mul(vb.get(j), v.get(j))), after);
      active = SelectLess(after, Mul(before, Set(1e-8f)), Set(1), active);
      active = SelectLess(after, Set(1e-30f), Set(1), active);
    }
  }
  float* saved_memory() const { return range.scratch + projection_scratch(problem, true) - save_size(); }
  std::size_t save_size() const { return static_cast<std::size_t>(n * m + n + m) * kProjectionLanes; }

  // From the gradient in K (log domain: in the logits) to that in the input.
  HWY_INLINE void Finish(std::int64_t first) {
    bool const positive = problem.start == ProjectionStart::positive;
    bool const softmax = problem.start == ProjectionStart::softmax;
    bool const log_domain = !kPlain && problem.log_domain;
    bool const shift_matters = problem.start == ProjectionStart::exp_shifted && !log_domain;
    Pack const inverse_temperature = Set(problem.inverse_temperature);
    // d K / d logit is K without the epsilon that was added to it.
    // Where K is 0 the gradient is too, however large the scalings of a row without mass made d.
    auto const product = [&](Pack const& x, Pack const& value) {
      return SelectLess(Set(0), Abs(value), Mul(x, value), value);
    };
    auto const pure = [&](int i, int j) {
      Pack const value = k.get(i * m + j);
      if (problem.matrix_epsilon <= 0) return value;
      bool const columns = problem.start == ProjectionStart::exp && problem.columns_first;
      Pack const scale = problem.start == ProjectionStart::exp ? first_shift.get(columns ? j : i) : Set(1);
      return Larger(Sub(value, Mul(Set(problem.matrix_epsilon), scale)), Set(0));
    };
    HWY_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      Pack sum = Set(0), largest = Set(-1);
      if (softmax || shift_matters) {
        for (int j = 0; j < m; ++j) {
          Pack const e = log_domain ? Set(1) : pure(i, j);
          sum = Add(product(d.get(i * m + j), e), sum);
          largest = Larger(largest, e);
        }
      }
      Pack taken = Set(1);  // Of the shift's gradient, which goes to the first of the row's largest.
      HWY_UNROLL(4)
      for (int j = 0; j < m; ++j) {
        int const e = i * m + j;
        Pack value = d.get(e);
        if (positive) {
          if (log_domain) value = Mul(value, Exp(Sub(Set(0), k.get(e))));
        } else if (softmax) {
          Pack const s = log_domain ? Exp(k.get(e)) : pure(i, j);
          value = log_domain ? NegMulAdd(s, sum, value) : product(Sub(value, sum), s);
        } else if (!log_domain) {
          Pack const p = pure(i, j);
          value = product(value, p);
          if (shift_matters) {
            Pack const here = SelectLess(p, largest, Set(0), taken);
            value = NegMulAdd(here, sum, value);
            taken = Sub(taken, here);
          }
        }
        Store(Mul(value, inverse_temperature), staging_ + e * kLanes);
      }
    }
    Write(range.result, first, problem.logit_rows, problem.logit_columns);
    if (range.d_dustbin_score != nullptr) {
      Pack sum = Load(staging_ + (n * m - 1) * kLanes);
      for (int i = 0; i + 1 < n; ++i) sum = Add(sum, Load(staging_ + (i * m + m - 1) * kLanes));
      for (int j = 0; j + 1 < m; ++j) sum = Add(sum, Load(staging_ + ((n - 1) * m + j) * kLanes));
      HWY_ALIGN float sums[kLanes];
      Store(sum, sums);
      for (std::int64_t t = 0; t < std::min<std::int64_t>(kLanes, range.last - first); ++t)
        range.d_dustbin_score[first + t] = sums[t];
    }
  }

  float* staging_;
};

bool IsPlain(ProjectionProblem const& problem) {
  return !problem.log_domain && problem.epsilon == 0 && problem.unit_marginals && problem.tolerance == 0 &&
         !problem.implicit;
}

template <class Visit>
void WithGroup(ProjectionRange const& range, bool backward, Visit&& visit) {
  ProjectionProblem const& problem = *range.problem;
  bool const four = problem.rows == 4 && problem.columns == 4 && !problem.dustbin();
  auto const run = [&](auto&& group) {
    for (std::int64_t first = range.first; first < range.last; first += kLanes) visit(group, first);
  };
  if (four && IsPlain(problem)) {
    run(Group<4, true>(range, backward));
  } else if (four) {
    run(Group<4, false>(range, backward));
  } else if (IsPlain(problem)) {
    run(Group<0, true>(range, backward));
  } else {
    run(Group<0, false>(range, backward));
  }
}

void Project(ProjectionRange const& range) {
  WithGroup(range, false, [](auto& group, std::int64_t first) { group.Forward(first); });
}
void ProjectBackward(ProjectionRange const& range) {
  WithGroup(range, true, [](auto& group, std::int64_t first) { group.Backward(first); });
}
#undef MONGE_EACH

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(Project);
HWY_EXPORT(ProjectBackward);

std::size_t projection_scratch(ProjectionProblem const& problem, bool backward) {
  auto const n = static_cast<std::size_t>(problem.rows), m = static_cast<std::size_t>(problem.columns);
  std::size_t packs = 2 * std::max(n * m, 2 * std::max(n, m)) + 3 * (n + m);
  if (backward) packs += 4 * n * m + 4 * (n + m) + (n + m) * static_cast<std::size_t>(problem.pairs);
  return packs * kProjectionLanes;
}

void project_range(ProjectionRange const& range) {
  HWY_DYNAMIC_DISPATCH(Project)(range);
}
void project_backward_range(ProjectionRange const& range) {
  HWY_DYNAMIC_DISPATCH(ProjectBackward)(range);
}

}  // namespace monge::cpu
#endif
