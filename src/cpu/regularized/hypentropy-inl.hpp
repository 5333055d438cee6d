// The prox of hypentropy on whole vectors: part of the splitting pass, for each instruction set.
//
//   x / shrink + h asinh(x / beta) = v,  v >= 0:  with x = beta sinh(y)  f(y) = kappa sinh(y) + h y = v
//
// Start     The smaller of two upper bounds, v / (kappa + h) and ln(1 + 2 v / kappa). The bits of 2 v + kappa, read as
//           an integer, give the logarithm up to 0.09.
// Steps     The inverse of f's Taylor polynomial of degree 4 (Schroeder): an error d becomes about d^5 / 5; a large
//           positive one falls by up to 2. Two steps as a rule.
// Numerics  y = k ln 2 + r, |r| <= ln 2 / 2, so sinh(y) = S cosh(r) + C sinh(r) with S and C sums of powers of 2.
//           S is 0 at k = 0, so small entries are exact to rounding, relatively. After the last step d, sinh(y + d)
//           comes from a Taylor polynomial. A vector of zeros costs one comparison.
#if defined(MONGE_CPU_HYPENTROPY) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_HYPENTROPY
#undef MONGE_CPU_HYPENTROPY
#else
#define MONGE_CPU_HYPENTROPY
#endif

#include <hwy/highway.h>

#include <cmath>
#include <numbers>

#include "regularized/splitting_rule.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class HypentropyProx {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  using DI = hn::RebindToSigned<D>;
  using I = hn::TFromD<DI>;

 public:
  explicit HypentropyProx(EntryProx<T> const& prox)
      : width_(prox.width), kappa_(prox.width / prox.shrink), h_(prox.hypentropy), inverse_slope_(1 / (kappa_ + h_)) {
    double const ln_kappa = std::log(static_cast<double>(prox.width) / static_cast<double>(prox.shrink));
    offset_ = static_cast<T>(std::numbers::ln2 * (0.09 - kBias) - ln_kappa);
  }

  HWY_INLINE V operator()(V v) const {
    D const d;
    V const zero = hn::Zero(d), h = hn::Set(d, h_), kappa = hn::Set(d, kappa_);
    if (hn::AllFalse(d, hn::Gt(v, zero))) return zero;
    V y = hn::Min(hn::Mul(v, hn::Set(d, inverse_slope_)), LogarithmAbove(hn::MulAdd(v, hn::Set(d, T(2)), kappa)));
    V sinh, cosh, step;
    for (int k = 0; k < kMostSteps; ++k) {
      y = hn::Clamp(y, zero, hn::Set(d, kMost));
      Evaluate(y, sinh, cosh);
      V const second = hn::Mul(kappa, sinh), third = hn::Mul(kappa, cosh);  // Derivatives of f.
      V const residual = hn::Sub(hn::NegMulAdd(h, y, v), second);
      V const inverse = hn::Div(hn::Set(d, T(1)), hn::Add(third, h));
      V const a = hn::Mul(residual, inverse);
      V const a2 = hn::Mul(hn::Mul(second, hn::Set(d, T(1) / 2)), inverse);
      V const a3 = hn::Mul(hn::Mul(third, hn::Set(d, T(1) / 6)), inverse);
      V const a22 = hn::Mul(a2, a2);
      V const c3 = hn::Sub(hn::Add(a22, a22), a3);
      V const c4 = hn::Mul(a2, hn::MulSub(hn::Set(d, T(5)), hn::Sub(a3, a22), hn::Set(d, T(1) / 12)));
      V const series = hn::MulSub(a, hn::MulAdd(a, c4, c3), a2);
      step = hn::Mul(a, hn::MulAdd(a, series, hn::Set(d, T(1))));
      if (hn::AllFalse(d, hn::Gt(hn::Abs(step), hn::Set(d, kLastStep)))) break;
      y = hn::Add(y, step);
    }
    step = hn::Clamp(step, hn::Set(d, -kLastStep), hn::Set(d, kLastStep));
    V const square = hn::Mul(step, step);
    V const even =
        hn::MulAdd(hn::MulAdd(square, hn::Set(d, T(1) / 24), hn::Set(d, T(1) / 2)), square, hn::Set(d, T(1)));
    V const odd = hn::Mul(step, hn::MulAdd(square, hn::Set(d, T(1) / 6), hn::Set(d, T(1))));
    V const x = hn::Mul(hn::Set(d, width_), hn::MulAdd(sinh, even, hn::Mul(cosh, odd)));
    return hn::IfThenElseZero(hn::Gt(v, zero), x);
  }

 private:
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kMantissaBits = kFloat ? 23 : 52, kBias = kFloat ? 127 : 1023;
  static constexpr int kMostSteps = 30;
  /// At this y, 2^k is near the largest number. Entries up to 1 stay below it for all widths that solves use.
  static constexpr T kMost = kFloat ? T(87) : T(708);
  /// After a step of at most this size, only rounding errors remain.
  static constexpr T kLastStep = kFloat ? T(0.02) : T(1e-4);

  /// ln(w / kappa), or up to 0.063 more.
  HWY_INLINE V LogarithmAbove(V w) const {
    D const d;
    constexpr double kUnit = std::numbers::ln2 / static_cast<double>(std::int64_t{1} << kMantissaBits);
    V const bits = hn::ConvertTo(d, hn::BitCast(DI(), w));
    return hn::MulAdd(bits, hn::Set(d, static_cast<T>(kUnit)), hn::Set(d, offset_));
  }

  static HWY_INLINE void Evaluate(V y, V& sinh, V& cosh) {
    D const d;
    DI const di;
    // The low bits of `shifted` are k and the exponent of 2^(k - 1); a shift moves them to the exponent's place.
    V const magic = hn::Set(d, (kFloat ? T(12582912) : T(6755399441055744)) + (kBias - 1));
    V const shifted = hn::MulAdd(y, hn::Set(d, std::numbers::log2e_v<T>), magic);
    V const r = hn::NegMulAdd(hn::Sub(shifted, magic), hn::Set(d, std::numbers::ln2_v<T>), y);
    auto const exponent = hn::ShiftLeft<kMantissaBits>(hn::BitCast(di, shifted));
    V const up = hn::BitCast(d, exponent);  // 2^k / 2 and 2^-k / 2
    V const down = hn::BitCast(d, hn::Sub(hn::Set(di, static_cast<I>(2 * kBias - 2) << kMantissaBits), exponent));
    V const s = hn::Sub(up, down), c = hn::Add(up, down);

    V const square = hn::Mul(r, r);
    V odd, even;  // sinh(r) / r and cosh(r)
    if constexpr (kFloat) {
      odd = Polynomial(square, {1.f / 5040, 1.f / 120, 1.f / 6, 1.f});
      even = Polynomial(square, {1.f / 720, 1.f / 24, 1.f / 2, 1.f});
    } else {
      odd = Polynomial(square, {1. / 6227020800, 1. / 39916800, 1. / 362880, 1. / 5040, 1. / 120, 1. / 6, 1.});
      even = Polynomial(square, {1. / 479001600, 1. / 3628800, 1. / 40320, 1. / 720, 1. / 24, 1. / 2, 1.});
    }
    odd = hn::Mul(odd, r);
    sinh = hn::MulAdd(s, even, hn::Mul(c, odd));
    cosh = hn::MulAdd(c, even, hn::Mul(s, odd));
  }

  template <std::size_t kTerms>
  static HWY_INLINE V Polynomial(V x, T const (&coefficients)[kTerms]) {
    D const d;
    V p = hn::Set(d, coefficients[0]);
    HWY_UNROLL(8)
    for (std::size_t k = 1; k < kTerms; ++k) p = hn::MulAdd(p, x, hn::Set(d, coefficients[k]));
    return p;
  }

  T width_, kappa_, h_, inverse_slope_, offset_;
};

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
