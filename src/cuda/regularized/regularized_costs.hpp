// The costs of a regularised problem, and its groups. Matrices are read in place on the device, or copied there once;
// points are packed (geometry/point_cost.hpp).
#pragma once
#include <optional>
#include <vector>

#include "cuda/geometry/cost_survey.hpp"
#include "cuda/geometry/costs.hpp"
#include "cuda/launch/transfer.hpp"
#include "cuda/regularized/regularized_entries.hpp"
#include "seam/regularized_operator.hpp"

namespace monge::cuda {

/// Makes `points` the user's costs, with coordinates in the memory that it returns. Waits.
DeviceArray<unsigned char> load_points(SharedRuntime const& runtime, PointCloud const& clouds, PointWeights a,
                                       PointWeights b, RegularizedPoints& points);

class RegularizedCosts final : public monge::RegularizedCosts {
 public:
  /// Data of rows or columns.
  struct Points {
    std::vector<double> share;
    std::vector<double> mean;  // Mean of the costs inside, less half of the overall mean; only without other terms.
  };

  /// Surveys must follow. Waits if there are points.
  RegularizedCosts(SharedRuntime runtime, RegularizedInput const& input);
  /// Starts the next survey of the costs.
  void survey(Queue const& queue);
  /// Waits for the survey. Returns whether another must follow; without one the costs are ready. Throws
  /// invalid_argument as described in regularized/regularized_costs.hpp.
  bool finish_survey();

  SharedRuntime const& runtime() const { return runtime_; }
  /// With l1 and hypentropy, without groups: terms() has those.
  RegularizerTerms const& given() const { return given_; }
  RegularizedMatrix const& matrix() const { return matrix_; }
  /// With groups, rows are sorted by group, and each group is padded to a multiple of kGroupRows.
  RowOrder order() const;
  /// The terms of h, in units of the costs inside.
  EntryTerms const& terms() const { return terms_; }
  /// The table of a term of slopes, in the same units; null without that term.
  SlopeTable const* slopes() const { return slopes_ ? &*slopes_ : nullptr; }
  /// The starts of the groups in the order of rows, and the end; empty without groups.
  std::vector<int> const& group_begin() const { return group_begin_; }
  Points const& of(Side side) const { return of_[side_index(side)]; }
  /// Numbers of the rows in the order of order(); padding gets 0.
  std::vector<double> in_order(std::span<double const> of_rows) const;

 private:
  /// Sets the scale and all that depends on it.
  void finish();
  void check(CostSurvey const& survey) const;
  void keep_means(CostSurvey const& survey);
  /// Gives the search the survey of cheap pairs; whether it needs another.
  bool search(CostSurvey const& survey);
  void scale_points();
  void sort_rows(RegularizerTerms const& terms);
  [[noreturn]] void throw_first_bad(CostSurvey const& survey) const;
  void set_means();
  Side side_of_lines() const { return matrix_.cost.transposed ? Side::columns : Side::rows; }

  SharedRuntime runtime_;
  DeviceArray<unsigned char> cost_copy_, l1_copy_, mask_copy_;  // Copies of matrices in host memory.
  DeviceArray<unsigned char> point_memory_;
  RegularizedMatrix matrix_;
  EntryTerms terms_;
  RegularizerTerms given_;
  Points of_[2];
  std::vector<int> row_, group_begin_;
  DeviceArray<int> device_row_, device_group_, device_group_begin_;
  DeviceArray<double> group_weight_;
  std::optional<SlopeTable> slopes_;  // Slopes in units of the costs inside.
  DeviceArray<double> slope_mass_, slope_, slope_value_;
  // The surveys, in this order. The first counts points. Where pairs are forbidden, a second weighs the allowed pairs
  // by shares of mass. The search takes one or more, by shares too. The last finds means without dear pairs.
  enum class Survey { of_all, of_allowed, of_search, of_means };
  Survey next_ = Survey::of_all;
  std::optional<CostSearch> search_;
  double allowed_ = 1;  // The mass of the allowed pairs.
  bool wants_means_;
  double least_ = 0;  // Least cost of all allowed pairs.
  CostSurvey found_{};
  std::vector<PointSums> means_;  // Sums of lines, then of places.
  DeviceArray<double> shares_;
  DeviceArray<unsigned char> scratch_;
  DeviceArray<PointSums> sums_;
  DeviceArray<CostSurvey> survey_;
};

}  // namespace monge::cuda
