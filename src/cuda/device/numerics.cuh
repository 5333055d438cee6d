// Streaming sums of powers of two, and reductions in a fixed order.
#pragma once
#include <limits>

#include "cuda/device/ptx.cuh"

namespace monge::cuda {

/// Stands for log2(0): below every real logit, and finite, so that the difference of two is 0 and not NaN.
template <class T>
inline constexpr T kEmptyLogit = T(-1e30);
template <>
inline constexpr double kEmptyLogit<double> = -1e300;

/// The first reference of a row. In double, columns of zero weight have no factor of 0; the reference is far above
/// their logits, so they add nothing.
template <class T>
inline constexpr T kLowestReference = kEmptyLogit<T>;
template <>
inline constexpr double kLowestReference<double> = kEmptyLogit<double> / 2;

/// log2 of the share beta 2^(t - reference); minus infinity if beta is 0 or the logit is empty.
template <class T>
__device__ __forceinline__ T log_share(T t, T reference, T log2_beta) {
  return t > kEmptyLogit<T> / 2 ? t - reference + log2_beta : -std::numeric_limits<T>::infinity();
}

/// x y + z with one rounding. For x * y + z compilers may round once or twice, differently in two kernels of the same
/// source, whose bits would then differ.
__device__ __forceinline__ float fused(float x, float y, float z) {
  return __fmaf_rn(x, y, z);
}
__device__ __forceinline__ double fused(double x, double y, double z) {
  return __fma_rn(x, y, z);
}

/// condition ? first : second, without a branch: both are computed.
__device__ __forceinline__ int select(bool condition, int first, int second) {
  int result;
  asm("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\nselp.b32 %0, %1, %2, p;\n}"
      : "=r"(result)
      : "r"(first), "r"(second), "r"(static_cast<int>(condition)));
  return result;
}

__device__ __forceinline__ float power_of_two(float x) {
  return fast_exp2(x);
}

/// Coefficients of the polynomial of degree 10, equal to 1 at 0, with the least largest relative error against 2^x on
/// [-1/2, 1/2]: 2^-52. From constant memory a coefficient is an operand of the multiply-add; an immediate one would
/// take two more instructions.
static __constant__ double kPowerOfTwo[10] = {
    0.69314718055994918,    0.24022650695909102,   0.055504108664481815, 0.0096181291079831221, 0.001333355822580089,
    0.00015403529994264858, 1.5252659427347007e-5, 1.321565358416668e-6, 1.0208323063676579e-7, 7.0381816886271402e-9};

/// 2^exponent power, for normal numbers.
__device__ __forceinline__ double scaled(double power, int exponent) {
  return __hiloint2double(__double2hiint(power) + (exponent << 20), __double2loint(power));
}

/// 2^x is a normal number if upper_half_of_size(x) is below this, the upper half of 1021.
inline constexpr int kExponentLimit = 0x408fe800;
__device__ __forceinline__ int upper_half_of_size(double x) {
  return __double2hiint(x) & 0x7fffffff;
}
/// `power` if |x| < 1021; otherwise 0 for negative x, infinity for positive x.
__device__ __forceinline__ double in_range(double x, double power) {
  constexpr int kInfinity = 0x7ff00000;
  int const upper = __double2hiint(x);
  bool const inside = upper_half_of_size(x) < kExponentLimit;
  int const outside = select(upper < 0, 0, max(upper, kInfinity));
  return __hiloint2double(select(inside, __double2hiint(power), outside), select(inside, __double2loint(power), 0));
}

/// 2^x with a relative error of 2^-51, exact at 0; zero from -1021 down and infinity from 1021 up. 13 operations in
/// double, with integer operations in between. Without branches several powers are in flight at once.
__device__ __forceinline__ double power_of_two(double x) {
  constexpr double kRounding = 6755399441055744.0;  // 1.5 2^52: added to x, it leaves the rounded integer.
  double const shifted = x + kRounding;
  double const rest = x - (shifted - kRounding);
  double power = kPowerOfTwo[9];
#pragma unroll
  for (int k = 8; k >= 0; --k) power = __fma_rn(power, rest, kPowerOfTwo[k]);
  power = __fma_rn(power, rest, 1.0);
  // The lower half of the rounded sum is the integer exponent.
  return in_range(x, scaled(power, __double2loint(shifted)));
}

/// 2^(k / 32).
static __constant__ double kPowersOfTwo[32] = {
    1.0000000000000000, 1.0218971486541166, 1.0442737824274138, 1.0671404006768237, 1.0905077326652577,
    1.1143867425958924, 1.1387886347566916, 1.1637248587775775, 1.1892071150027210, 1.2152473599804690,
    1.2418578120734840, 1.2690509571917332, 1.2968395546510096, 1.3252366431597413, 1.3542555469368927,
    1.3839098819638320, 1.4142135623730951, 1.4451808069770467, 1.4768261459394993, 1.5091644275934228,
    1.5422108254079407, 1.5759808451078865, 1.6104903319492543, 1.6457554781539649, 1.6817928305074290,
    1.7186192981224779, 1.7562521603732995, 1.7947090750031072, 1.8340080864093424, 1.8741676341103000,
    1.9152065613971474, 1.9571441241754002};

/// Coefficients of the polynomial of degree 5, equal to 1 at 0, with the least largest relative error against 2^x on
/// [-1/64, 1/64]: 2^-53.
static __constant__ double kPowerOfRest[5] = {0.6931471805599451, 0.2402265069551457, 0.05550410866792694,
                                              0.009618181466807905, 0.0013333490246872277};

/// 2^x for all threads of a block, in the arithmetic of T.
template <class T>
class Powers {
 public:
  struct Table {};
  __device__ __forceinline__ explicit Powers(Table&) {}
  __device__ __forceinline__ T operator()(T x) const { return power_of_two(x); }
};

/// As power_of_two(), in 9 operations in double, with a table of 32 powers in shared memory. Each lane of half a warp
/// has a copy of the table, so that no two of them meet in a bank.
template <>
class Powers<double> {
  static constexpr int kEntries = 32, kCopies = 16;

 public:
  using Table = double[kEntries][kCopies];
  /// All threads of the block call it. A barrier must follow before the first power.
  __device__ __forceinline__ explicit Powers(Table& table) : mine_(&table[0][threadIdx.x % kCopies]) {
    for (int k = static_cast<int>(threadIdx.x); k < kEntries * kCopies; k += static_cast<int>(blockDim.x))
      table[k / kCopies][k % kCopies] = kPowersOfTwo[k / kCopies];
  }
  __device__ __forceinline__ double operator()(double x) const { return in_range(x, normal(x)); }
  /// The same for |x| < 1021.
  __device__ __forceinline__ double normal(double x) const {
    constexpr double kRounding = 6755399441055744.0 / kEntries;  // 1.5 2^47: its sum with x is a multiple of 1 / 32.
    double const shifted = x + kRounding;
    double const rest = x - (shifted - kRounding);
    // The lower half of the rounded sum is an integer: 32 times the exponent, and the index of the table.
    int const parts = __double2loint(shifted);
    double const power = mine_[(parts & (kEntries - 1)) * kCopies];
    double part = kPowerOfRest[4];
#pragma unroll
    for (int k = 3; k >= 0; --k) part = __fma_rn(part, rest, kPowerOfRest[k]);
    return scaled(__fma_rn(power, part * rest, power), parts >> 5);
  }

 private:
  double const* mine_;
};

/// If the sum of 2^(t - reference) over one tile reaches this, the reference is too low and must move. Smaller sums
/// lose no digits in float, and 2^40 tiles of them do not overflow. Hardly any tile but the first of a block moves the
/// reference.
inline constexpr float kLargestTileSum = 1099511627776.0f;  // 2^40

/// make() makes sums of exponentials relative to references. No maximum is taken first: where the references are not
/// given and a sum shows that one is too low, raise() moves it to the largest term, and the sums are made again. All
/// lanes of a warp together.
template <bool kGiven, class T, int kCount, class Make, class Raise>
__device__ __forceinline__ void sum_and_raise(T const (&sum)[kCount], Make const& make, Raise const& raise) {
#pragma unroll 1
  for (int attempt = 0;; ++attempt) {
    make();
    if constexpr (kGiven) return;
    bool low = false;
#pragma unroll
    for (int r = 0; r < kCount; ++r) low |= !(sum[r] < T(kLargestTileSum));
    // After the references moved, only NaN logits could fail the check again.
    if (attempt == 1 || !__any_sync(0xffffffffu, low)) break;
    raise();
  }
}

/// sum += value with a compensation of the rounding error (Kahan).
__device__ __forceinline__ void compensated_add(float& sum, float& compensation, float value) {
  float const corrected = value - compensation;
  float const next = sum + corrected;
  compensation = (next - sum) - corrected;
  sum = next;
}

/// Merges the sums of two sets of terms, with their references.
template <class T>
__device__ __forceinline__ void merge_sums(T& reference, T& sum, T other_reference, T other_sum) {
  T const next = reference > other_reference ? reference : other_reference;
  sum = sum * power_of_two(reference - next) + other_sum * power_of_two(other_reference - next);
  reference = next;
}

/// The sum over the lanes of a warp, for each of them, in a fixed order.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

template <class T>
__device__ __forceinline__ T warp_max(T value) {
  for (int mask = 16; mask > 0; mask >>= 1) value = fmax(value, __shfl_xor_sync(0xffffffffu, value, mask));
  return value;
}

/// The sum over a block of kThreads threads, for thread 0.
template <int kThreads>
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double partial[kThreads / 32];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  double total = 0;
  if (threadIdx.x == 0) {
    for (int w = 0; w < kThreads / 32; ++w) total += partial[w];
  }
  return total;
}

}  // namespace monge::cuda
