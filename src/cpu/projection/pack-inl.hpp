// A Pack holds one number of each matrix of a group. Its arithmetic is the same on all lanes and never mixes them, so a
// matrix cannot depend on its neighbours. The file is compiled once for each instruction set: hence the guard that
// toggles.
#if defined(MONGE_CPU_PROJECTION_PACK) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_PROJECTION_PACK
#undef MONGE_CPU_PROJECTION_PACK
#else
#define MONGE_CPU_PROJECTION_PACK
#endif

#include <cmath>
#include <limits>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A pass over a group is inlined in one function and unrolled, so that a 4 x 4 matrix stays in registers. With a
// sanitizer this function would take minutes to compile, and without vectors it gains nothing: there a pass calls its
// steps, and they keep their loops.
#undef MONGE_STEP
#undef MONGE_UNROLL
#if HWY_IS_ASAN || defined(__SANITIZE_ADDRESS__) || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define MONGE_STEP inline HWY_NOINLINE
#define MONGE_UNROLL(factor)
#else
#define MONGE_STEP HWY_INLINE
#define MONGE_UNROLL(factor) HWY_UNROLL(factor)
#endif

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr int kVectors = 2;
inline constexpr int kVectorLanes = static_cast<int>(hn::MaxLanes(D()));
inline constexpr int kLanes = kVectors * kVectorLanes;

/// kLanes floats.
struct Pack {
  V x[kVectors];
};

#undef MONGE_EACH
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
/// The larger of the two; NaN only if `a` is NaN. hn::Max treats NaN differently on different machines.
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
MONGE_STEP Pack Reciprocal(Pack const& a) {
  Pack r;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  MONGE_EACH {  // 14 bits; one Newton step doubles them.
    V const guess = hn::ApproximateReciprocal(a.x[p]);
    r.x[p] = hn::MulAdd(guess, hn::NegMulAdd(a.x[p], guess, hn::Set(D(), 1.0f)), guess);
  }
#else
  MONGE_EACH r.x[p] = hn::Div(hn::Set(D(), 1.0f), a.x[p]);
#endif
  return r;
}
/// x where a < b, else y.
HWY_INLINE Pack SelectLess(Pack const& a, Pack const& b, Pack const& x, Pack const& y) {
  Pack r;
  MONGE_EACH r.x[p] = hn::IfThenElse(hn::Lt(a.x[p], b.x[p]), x.x[p], y.x[p]);
  return r;
}
/// The bound with which x < above(tolerance) means x <= tolerance.
HWY_INLINE Pack above(float tolerance) {
  return Set(std::nextafter(tolerance, std::numeric_limits<float>::infinity()));
}
HWY_INLINE bool AnyLess(Pack const& a, Pack const& b) {
  bool any = false;
  MONGE_EACH any = any || !hn::AllFalse(D(), hn::Lt(a.x[p], b.x[p]));
  return any;
}

/// e^x. The argument is reduced by ln 2 in two parts, so that the error stays at the last place for |x| < 87; 0 below.
MONGE_STEP Pack Exp(Pack const& a) {
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
MONGE_STEP Pack Log(Pack const& a) {
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

/// Sums start from this. The scaling of a row without mass is then finite, and its products with 0 are 0.
inline constexpr float kLeast = 1e-37f;
/// The least shift: rows of -inf have no largest entry.
inline constexpr float kNoLogit = -1e30f;
}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
