// The half-steps in the log domain, for spreads of the logits that K = exp(logits) cannot hold:
//   P_ij = exp(x_ij + f_i + g_j),   f_i = log a_i - logsumexp_j (x_ij + g_j)
#if defined(MONGE_CPU_PROJECTION_LOG) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_PROJECTION_LOG
#undef MONGE_CPU_PROJECTION_LOG
#else
#define MONGE_CPU_PROJECTION_LOG
#endif

#include <cmath>

#include "cpu/projection/group-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

struct Logarithmic {
  static constexpr bool uniform = false, tentative = false, weighted = false;
  static constexpr float neutral_scaling = 0;

  template <class G>
  HWY_INLINE static Pack entry(G const& g, int i, int j) {
    return Exp(Add(Add(g.k.get(i * g.rows.stride() + j), g.rows.scaling.get(i)), g.columns.scaling.get(j)));
  }

  /// Turns k from x, or from a given matrix, into logits.
  template <class G>
  MONGE_STEP static void start(G& g) {
    int const n = g.rows.size(), m = g.columns.size();
    if (g.problem.start == ProjectionStart::positive) {
      for (int e = 0; e < n * m; ++e) {
        Pack const value = g.k.get(e);  // log 0 becomes a very small number, log NaN becomes NaN.
        g.k.set(e, SelectLess(Set(0), value, Log(value), Add(value, Set(-1e38f))));
      }
    } else if (g.problem.start == ProjectionStart::softmax) {
      for (int i = 0; i < n; ++i) {
        Pack largest = Set(kNoLogit), sum = Set(kLeast);
        for (int j = 0; j < m; ++j) largest = Larger(largest, g.k.get(i * m + j));
        for (int j = 0; j < m; ++j) sum = Add(sum, Exp(Sub(g.k.get(i * m + j), largest)));
        Pack const logarithm = Add(largest, Log(sum));
        for (int j = 0; j < m; ++j) g.k.set(i * m + j, Sub(g.k.get(i * m + j), logarithm));
      }
    }
  }

  /// As Linear::step().
  template <class G, class Own, class Other>
  MONGE_STEP static void step(G& g, Own& own, Other const& other, bool check) {
    Pack const zero = Set(0);
    Pack error = zero;
    for (int i = 0; i < own.size(); ++i) {
      float const marginal = own.marginal(i);
      auto const term = [&](int j) {
        return Add(g.k.get(i * own.stride() + j * other.stride()), other.scaling.get(j));
      };
      Pack largest = Set(kNoLogit), sum = zero;
      for (int j = 0; j < other.size(); ++j) largest = Larger(largest, term(j));
      for (int j = 0; j < other.size(); ++j) sum = Add(sum, Exp(Sub(term(j), largest)));
      Pack const next = Sub(Sub(Set(std::log(marginal)), largest), Log(Add(sum, Set(kLeast))));
      if (check && marginal > 0) error = Larger(Abs(Sub(Exp(Sub(own.scaling.get(i), next)), Set(1))), error);
      g.staging.set(i, next);
    }
    if (check) g.done = SelectLess(error, above(g.problem.tolerance), Set(1), g.done);
    for (int i = 0; i < own.size(); ++i)
      own.scaling.set(i, SelectLess(g.done, zero, g.staging.get(i), own.scaling.get(i)));
  }

  /// The gradients in x and in the last potentials, from the gradient in P.
  template <class G>
  MONGE_STEP static void start_back(G& g) {
    int const n = g.rows.size(), m = g.columns.size();
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < m; ++j) {
        int const e = i * m + j;
        Pack const flow = Mul(g.d_out.get(e), entry(g, i, j));
        g.d_k.set(e, flow);
        g.rows.bar.set(i, Add(g.rows.bar.get(i), flow));
        g.columns.bar.set(j, Add(g.columns.bar.get(j), flow));
      }
    }
  }

  /// As Linear::back(). The derivatives of a logsumexp are its softmax: exp(k + read + made) over the marginal.
  template <class G, class Own, class Other>
  MONGE_STEP static void back(G& g, Own& own, Other& other, Row made, Row read, Pack const& active) {
    Pack const zero = Set(0);
    for (int i = 0; i < own.size(); ++i) {
      float const marginal = own.marginal(i);
      if (marginal <= 0) continue;
      Pack const bar = SelectLess(active, zero, own.bar.get(i), zero);
      Pack const factor = Mul(bar, Set(1 / marginal));
      for (int j = 0; j < other.size(); ++j) {
        int const e = i * own.stride() + j * other.stride();
        Pack const flow = Mul(factor, Exp(Add(Add(g.k.get(e), read.get(j)), made.get(i))));
        g.d_k.set(e, Sub(g.d_k.get(e), flow));
        other.bar.set(j, Sub(other.bar.get(j), flow));
      }
      own.bar.set(i, Sub(own.bar.get(i), bar));
    }
  }

  /// Writes the gradient in x, from the gradient in the logits, to the staging memory. A row's shift has no gradient
  /// here, since it changes nothing.
  template <class G>
  MONGE_STEP static void finish_back(G& g) {
    int const n = g.rows.size(), m = g.columns.size();
    for (int i = 0; i < n; ++i) {
      Pack sum = Set(0);
      for (int j = 0; j < m; ++j) sum = Add(g.d_k.get(i * m + j), sum);
      for (int j = 0; j < m; ++j) {
        int const e = i * m + j;
        Pack result = g.d_k.get(e);
        if (g.problem.start == ProjectionStart::positive) result = Mul(result, Exp(Sub(Set(0), g.k.get(e))));
        if (g.problem.start == ProjectionStart::softmax) result = NegMulAdd(Exp(g.k.get(e)), sum, result);
        g.staging.set(e, result);
      }
    }
  }
};

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
