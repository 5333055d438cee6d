// The half-steps on scalings, P = diag(u) K diag(v), with K from the logits and the epsilon of each convention. The
// formulas are in docs/projection.md.
#if defined(MONGE_CPU_PROJECTION_LINEAR) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_PROJECTION_LINEAR
#undef MONGE_CPU_PROJECTION_LINEAR
#else
#define MONGE_CPU_PROJECTION_LINEAR
#endif

#include "cpu/projection/group-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

/// The abilities that half-steps need. Plain: sums of 1 and no epsilon, no tolerance, no implicit gradient, so that
/// all lanes do the same; a clamp is allowed that can act in the first pair alone, after which clamps() looks. Guarded:
/// an epsilon that is added to the sums. General: everything; where nothing is clamped, the bits are those of the plain
/// steps.
enum class Steps { plain, guarded, general };

inline Steps steps_of(ProjectionProblem const& problem) {
  if (!problem.unit_marginals || problem.tolerance > 0 || problem.implicit) return Steps::general;
  if (problem.epsilon == 0 || problem.clamps_in_first_pair_only()) return Steps::plain;
  return problem.epsilon_mode == EpsilonMode::clamp ? Steps::general : Steps::guarded;
}

template <Steps kSteps>
struct Linear {
  static constexpr bool kGuarded = kSteps == Steps::guarded, kGeneral = kSteps == Steps::general;
  static constexpr bool uniform = !kGeneral, tentative = kSteps == Steps::plain, weighted = kGuarded || kGeneral;
  static constexpr float neutral_scaling = 1;

  /// The scaling without its sign, which marks one whose sum was clamped.
  HWY_INLINE static Pack unmarked(Pack const& scaling) { return kGeneral ? Abs(scaling) : scaling; }

  template <class G>
  HWY_INLINE static Pack entry(G const& g, int i, int j) {
    int const at = i * g.rows.stride() + j;
    return Mul(Mul(unmarked(g.rows.scaling.get(i)), g.k.get(at)), unmarked(g.columns.scaling.get(j)));
  }

  /// Turns k from x into K.
  template <class G>
  MONGE_STEP static void start(G& g) {
    if constexpr (weighted) {
      for (int i = 0; i < g.rows.size(); ++i) g.rows.weight.set(i, Set(1));
      for (int j = 0; j < g.columns.size(); ++j) g.columns.weight.set(j, Set(1));
    }
    if (g.problem.start == ProjectionStart::positive) return;
    if (shifts_columns(g.problem)) {
      exponentiate(g, g.columns, g.rows);
    } else {
      exponentiate(g, g.rows, g.columns);
    }
  }

  /// The half-step of `own`. With `check`, lanes whose sums are all within the tolerance stop before it.
  template <class G, class Own, class Other>
  MONGE_STEP static void step(G& g, Own& own, Other const& other, bool check) {
    bool const clamp = g.problem.epsilon_mode == EpsilonMode::clamp;
    bool const constant_weight = g.problem.epsilon_mode == EpsilonMode::scaling;
    int const size = own.size(), other_size = other.size();
    Pack const zero = Set(0);
    Pack error = zero;
    auto const take = [&](int i, Pack const& scaling, Pack const& weight) {
      own.scaling.set(i, SelectLess(g.done, zero, scaling, own.scaling.get(i)));
      own.weight.set(i, SelectLess(g.done, zero, weight, own.weight.get(i)));
    };
    MONGE_UNROLL(4)
    for (int i = 0; i < size; ++i) {
      Pack sum = Set(kLeast);
      if constexpr (kGuarded) sum = MulAdd(Set(g.problem.epsilon), own.weight.get(i), sum);
      MONGE_UNROLL(4)
      for (int j = 0; j < other_size; ++j)
        sum = MulAdd(g.k.get(i * own.stride() + j * other.stride()), unmarked(other.scaling.get(j)), sum);
      if constexpr (!kGeneral) {
        own.scaling.set(i, Reciprocal(sum));
        if (kGuarded && !constant_weight) own.weight.set(i, sum);
      } else {
        float const marginal = own.marginal(i), inverse = inverse_or_zero(marginal);
        if (check && marginal > 0) {
          Pack const now = Mul(Mul(sum, unmarked(own.scaling.get(i))), Set(inverse));
          error = Larger(Abs(Sub(now, Set(1))), error);
        }
        Pack const weight = own.weight.get(i), guard = Mul(Set(g.problem.epsilon), weight);
        Pack const guarded = clamp ? Larger(sum, guard) : Add(sum, guard);
        Pack scaling = Mul(Set(marginal), Reciprocal(guarded));
        if (clamp) scaling = SelectLess(sum, guard, Sub(zero, scaling), scaling);
        Pack const next_weight = constant_weight ? weight : Mul(guarded, Set(inverse));
        if (check) {  // All sums must be known before a scaling changes.
          g.staging.set(i, scaling);
          g.staging.set(size + i, next_weight);
        } else {
          take(i, scaling, next_weight);
        }
      }
    }
    if constexpr (kGeneral) {
      if (!check) return;
      g.done = SelectLess(error, above(g.problem.tolerance), Set(1), g.done);
      for (int i = 0; i < size; ++i) take(i, g.staging.get(i), g.staging.get(size + i));
    }
  }

  /// After the first pair of steps: whether the clamp may act on one of its sums.
  template <class G>
  HWY_INLINE static bool clamps(G const& g) {
    if (g.problem.epsilon == 0) return false;
    Pack const most = Set(0.99999f / g.problem.epsilon);
    bool any = false;
    for (int i = 0; i < g.rows.size(); ++i) any = any || AnyLess(most, g.rows.scaling.get(i));
    for (int j = 0; j < g.columns.size(); ++j) any = any || AnyLess(most, g.columns.scaling.get(j));
    return any;
  }

  /// The gradients in K and in the last scalings, from the gradient in P.
  template <class G>
  MONGE_STEP static void start_back(G& g) {
    int const n = g.rows.size(), m = g.columns.size();
    MONGE_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      MONGE_UNROLL(4)
      for (int j = 0; j < m; ++j) {
        int const e = i * m + j;
        Pack const u = unmarked(g.rows.scaling.get(i)), v = unmarked(g.columns.scaling.get(j));
        Pack const gk = Mul(g.d_out.get(e), g.k.get(e));
        g.d_k.set(e, Mul(g.d_out.get(e), Mul(u, v)));
        g.rows.bar.set(i, MulAdd(gk, v, g.rows.bar.get(i)));
        g.columns.bar.set(j, MulAdd(gk, u, g.columns.bar.get(j)));
      }
    }
  }

  /// In the lanes where active < 0, undoes a half-step of `own` that made the scalings `made` from `read`. The gradient
  /// in `made` becomes gradients in K and in `read`.
  template <class G, class Own, class Other>
  MONGE_STEP static void back(G& g, Own& own, Other& other, Row made, Row read, Pack const& active) {
    bool const clamp = g.problem.epsilon_mode == EpsilonMode::clamp;
    bool const constant_weight = g.problem.epsilon_mode == EpsilonMode::scaling;
    int const size = own.size(), other_size = other.size();
    Pack const zero = Set(0);
    MONGE_UNROLL(4)
    for (int i = 0; i < size; ++i) {
      Pack const bar = own.bar.get(i), mark = made.get(i), scaling = unmarked(mark);
      Pack in_sum = Sub(zero, Mul(Mul(bar, scaling), scaling));
      if constexpr (!kGeneral) {
        own.bar.set(i, zero);
        if constexpr (kGuarded) {
          in_sum = Add(in_sum, own.chain.get(i));
          own.chain.set(i, constant_weight ? zero : Mul(in_sum, Set(g.problem.epsilon)));
        }
      } else {
        float const inverse = inverse_or_zero(own.marginal(i));
        Pack const chain = own.chain.get(i);
        in_sum = Add(Mul(in_sum, Set(inverse)), chain);
        Pack const into_weight = Mul(in_sum, Set(g.problem.epsilon * inverse));
        Pack next_chain = constant_weight ? zero : into_weight;
        if (clamp) {  // A clamped sum passes nothing to K and everything to the weight.
          next_chain = SelectLess(mark, zero, into_weight, zero);
          in_sum = SelectLess(mark, zero, zero, in_sum);
        }
        own.chain.set(i, SelectLess(active, zero, next_chain, chain));
        in_sum = SelectLess(active, zero, in_sum, zero);
        own.bar.set(i, SelectLess(active, zero, zero, bar));
      }
      MONGE_UNROLL(4)
      for (int j = 0; j < other_size; ++j) {
        int const e = i * own.stride() + j * other.stride();
        g.d_k.set(e, MulAdd(in_sum, unmarked(read.get(j)), g.d_k.get(e)));
        other.bar.set(j, MulAdd(in_sum, g.k.get(e), other.bar.get(j)));
      }
    }
  }

  /// Writes the gradient in x, from the gradient in K, to the staging memory.
  template <class G>
  MONGE_STEP static void finish_back(G& g) {
    ProjectionProblem const& problem = g.problem;
    int const n = g.rows.size(), m = g.columns.size();
    bool const softmax = problem.start == ProjectionStart::softmax;
    bool const shift_counts = problem.start == ProjectionStart::exp_shifted;
    bool const scaled = problem.start == ProjectionStart::exp, by_columns = shifts_columns(problem);
    // d K / d x is K without the added epsilon.
    auto const without_epsilon = [&](int i, int j) {
      Pack const value = g.k.get(i * m + j);
      if (problem.matrix_epsilon <= 0) return value;
      Pack const scale = scaled ? g.shift.get(by_columns ? j : i) : Set(1);
      return Larger(NegMulAdd(Set(problem.matrix_epsilon), scale, value), Set(0));
    };
    // If K is 0, the gradient is 0: the scalings of a row without mass may have made x infinite.
    auto const product = [](Pack const& x, Pack const& value) {
      return SelectLess(Set(0), Abs(value), Mul(x, value), value);
    };
    MONGE_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      Pack sum = Set(0), largest = Set(-1);
      if (softmax || shift_counts) {
        for (int j = 0; j < m; ++j) {
          Pack const value = without_epsilon(i, j);
          sum = Add(product(g.d_k.get(i * m + j), value), sum);
          largest = Larger(largest, value);
        }
      }
      Pack left = Set(1);  // The rest of the shift's gradient. The first of the largest entries takes it.
      MONGE_UNROLL(4)
      for (int j = 0; j < m; ++j) {
        int const e = i * m + j;
        Pack result = g.d_k.get(e);
        if (problem.start != ProjectionStart::positive) {
          Pack const value = without_epsilon(i, j);
          result = product(softmax ? Sub(result, sum) : result, value);
          if (shift_counts) {
            Pack const here = SelectLess(value, largest, Set(0), left);
            result = NegMulAdd(here, sum, result);
            left = Sub(left, here);
          }
        }
        g.staging.set(e, result);
      }
    }
  }

 private:
  static float inverse_or_zero(float x) { return x > 0 ? 1 / x : 0; }

  static bool shifts_columns(ProjectionProblem const& problem) {
    return problem.start == ProjectionStart::exp && problem.columns_first;
  }

  /// K = exp(x - s) + epsilon, with s the largest of each line of `own`; or the softmax of the line, + epsilon. If an
  /// epsilon is relative to e^{-s}, the weights start as e^{-s}, and s is at least -40, so that they do not overflow.
  template <class G, class Own, class Other>
  MONGE_STEP static void exponentiate(G& g, Own& own, Other const& other) {
    ProjectionProblem const& problem = g.problem;
    int const size = own.size(), other_size = other.size();
    bool const keeps_scale =
        problem.start == ProjectionStart::exp && (problem.epsilon > 0 || problem.matrix_epsilon > 0);
    Pack const least = Set(keeps_scale ? -40.0f : kNoLogit);
    MONGE_UNROLL(4)
    for (int i = 0; i < size; ++i) {
      auto const at = [&](int j) { return i * own.stride() + j * other.stride(); };
      Pack largest = least;  // Larger() drops a NaN; it comes back through x - largest.
      MONGE_UNROLL(4)
      for (int j = 0; j < other_size; ++j) largest = Larger(largest, g.k.get(at(j)));
      MONGE_UNROLL(4)
      for (int j = 0; j < other_size; ++j) g.k.set(at(j), Exp(Sub(g.k.get(at(j)), largest)));
      if (problem.start == ProjectionStart::softmax) {
        Pack sum = Set(kLeast);
        for (int j = 0; j < other_size; ++j) sum = Add(sum, g.k.get(at(j)));
        Pack const factor = Reciprocal(sum);
        for (int j = 0; j < other_size; ++j)
          g.k.set(at(j), MulAdd(g.k.get(at(j)), factor, Set(problem.matrix_epsilon)));
      } else if (keeps_scale || problem.matrix_epsilon > 0) {
        Pack const scale = keeps_scale ? Exp(Sub(Set(0), largest)) : Set(1);
        if (problem.matrix_epsilon > 0) {
          for (int j = 0; j < other_size; ++j)
            g.k.set(at(j), MulAdd(Set(problem.matrix_epsilon), scale, g.k.get(at(j))));
          g.shift.set(i, scale);
        }
        if constexpr (weighted) own.weight.set(i, scale);
      }
    }
  }
};

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
