// The images of sweeps that Anderson's method combines (entropic/policy/anderson.hpp), in the memory of a backend.
#pragma once
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>

#include "core/host_device.hpp"
#include "core/numbers.hpp"
#include "seam/vectors.hpp"

namespace monge {

/// The most differences of images in a combination.
inline constexpr int kMixedDifferences = 4;

/// The least-squares problem of a mixture: the multiples of the differences of residuals whose sum is nearest to the
/// last residual. A new difference replaces the oldest one, so the newest of 0, ..., count - 1 may have any number.
struct MixingSums {
  double gram[kMixedDifferences][kMixedDifferences];  // Inner products of the differences of residuals
  double right[kMixedDifferences];                    // and of these with the last residual.
  double mean[kMixedDifferences];                     // Differences of the images' means, sum b g / sum b,
  double last_mean;                                   // and the mean of the last image.

  /// A new image has come, whose mean is `mean_of_image`. The difference of its residual from the last one has the
  /// number `newest`. `products` are the inner products of this difference with all differences, and `own` is the inner
  /// product with the residual of the new image.
  MONGE_HOST_DEVICE void add(int newest, int count, double const* products, double own, double mean_of_image) {
    for (int k = 0; k < count; ++k) right[k] += gram[k][newest] = gram[newest][k] = products[k];
    right[newest] = own;
    mean[newest] = mean_of_image - last_mean;
    last_mean = mean_of_image;
  }

  /// Writes the multiples, all 0 where rounding or overflow leaves no solution. kRidge of the trace is added to the
  /// diagonal. Loops have constant lengths, so that a kernel keeps the matrix in registers.
  MONGE_HOST_DEVICE void solve(int count, double* multiples) const {
    constexpr int kSize = kMixedDifferences;
    constexpr double kRidge = 1e-6;
    double trace = 0;
    for (int k = 0; k < kSize; ++k) trace += k < count ? gram[k][k] : 0;
    double matrix[kSize][kSize], solution[kSize];
    for (int k = 0; k < kSize; ++k) {
      solution[k] = k < count ? right[k] : 0;
      for (int l = 0; l < kSize; ++l) matrix[k][l] = k < count && l < count ? gram[k][l] : 0;
      matrix[k][k] = k < count ? matrix[k][k] + kRidge * trace : 1;
    }
    // Gauss's elimination: a positive definite matrix needs no pivots.
    bool is_sound = true;
    for (int k = 0; k < kSize; ++k) {
      is_sound = is_sound && matrix[k][k] > 0 && std::isfinite(matrix[k][k]);
      for (int i = k + 1; i < kSize; ++i) {
        double const factor = matrix[i][k] / matrix[k][k];
        for (int j = k; j < kSize; ++j) matrix[i][j] -= factor * matrix[k][j];
        solution[i] -= factor * solution[k];
      }
    }
    for (int k = kSize - 1; k >= 0; --k) {
      for (int j = k + 1; j < kSize; ++j) solution[k] -= matrix[k][j] * solution[j];
      solution[k] /= matrix[k][k];
      is_sound = is_sound && std::isfinite(solution[k]);
    }
    for (int k = 0; k < kSize; ++k) multiples[k] = is_sound ? solution[k] : 0;
  }

  /// The constant that is added to g and taken away from f: a combination whose mean is more than kFar eps away goes
  /// back to `first_mean`.
  MONGE_HOST_DEVICE double shift(int count, double const* multiples, double first_mean, double eps) const {
    constexpr double kFar = 1024;
    double shift = first_mean - last_mean;
    for (int k = 0; k < count; ++k) shift += multiples[k] * mean[k];
    return std::abs(shift) > kFar * eps ? shift : 0;
  }
};

/// Potentials after a sweep, and the residual before it.
struct SweepImage {
  std::unique_ptr<Vector> f, g, residual;
};

/// Vectors and coefficients of Anderson mixing, kept from its start on.
struct Mixture {
  std::unique_ptr<Vector> weight, root;  ///< b, b^(1/2)
  double mass = 0;                       ///< sum b
  double eps = 0;                        ///< The eps of the sweeps.
  std::unique_ptr<Vector> start;         ///< The g from which the last sweep started.
  double first_mean = 0;                 ///< sum b g / sum b of the first start.
  SweepImage last;
  std::array<SweepImage, kMixedDifferences> differences;  ///< Between images in turn; a ring.
  int images = 0;                                         ///< The number of images so far.
  MixingSums sums{};                                      ///< If the host keeps them.
  std::shared_ptr<void> memory;                           ///< What the backend keeps, if not.

  /// The number of differences of images, once there are `images`, and the newest of them.
  int count() const { return images > kMixedDifferences ? kMixedDifferences : images > 0 ? images - 1 : 0; }
  std::size_t newest() const { return to_size(images - 2) % kMixedDifferences; }
};

}  // namespace monge
