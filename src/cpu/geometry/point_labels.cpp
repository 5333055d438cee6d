#include "cpu/geometry/point_labels.hpp"

#include <numeric>
#include <utility>

#include "core/numbers.hpp"

namespace monge::cpu {
namespace {

std::vector<std::int64_t> labels_of(char const* field, IndexView view, std::int64_t classes) {
  require_classes(field, view, classes);
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < view.size; ++i) labels.push_back(view.data[i * view.stride]);
  return labels;
}

/// The weights of the classes; their sum is 1.
std::vector<double> shares_of(std::span<std::int64_t const> labels, std::span<double const> weights,
                              std::int64_t classes) {
  std::vector<double> shares(to_size(classes), 0.0);
  for (std::size_t i = 0; i < labels.size(); ++i) shares[to_size(labels[i])] += weights.empty() ? 1.0 : weights[i];
  double const total = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= total;
  return shares;
}

}  // namespace

PointLabels::PointLabels(std::shared_ptr<LabelCosts const> costs_of_classes, Labels const& labels,
                         std::span<double const> a, std::span<double const> b)
    : costs(std::move(costs_of_classes)),
      of{labels_of("labels_x", labels.x, costs->rows), labels_of("labels_y", labels.y, costs->columns)},
      centred(costs->cost) {
  std::vector<double> const p = shares_of(of[0], a, costs->rows), q = shares_of(of[1], b, costs->columns);
  for (Side const side : kSides) shift[static_cast<int>(side)].assign((side == Side::rows ? p : q).size(), 0.0);
  std::size_t e = 0;
  for (std::size_t k = 0; k < p.size(); ++k) {
    for (std::size_t l = 0; l < q.size(); ++l, ++e) {
      shift[0][k] += q[l] * centred[e];
      shift[1][l] += p[k] * centred[e];
    }
    mean += p[k] * shift[0][k];
  }
  for (std::vector<double>& shifts : shift) {
    for (double& value : shifts) value -= mean / 2;
  }
  e = 0;
  for (std::size_t k = 0; k < p.size(); ++k) {
    for (std::size_t l = 0; l < q.size(); ++l, ++e) centred[e] -= shift[0][k] + shift[1][l];
  }
}

PointLabels PointLabels::at(Side side, IndexView labels) const {
  PointLabels result = *this;
  result.of[static_cast<int>(side)] = labels_of("labels", labels, costs->classes(side));
  return result;
}

template <class T>
PackedLabels<T> pack_labels(std::span<std::int64_t const> labels) {
  std::int64_t const last = labels.empty() ? 0 : labels.back();
  PackedLabels<T> packed(to_size(padded_to_panel<T>(std::ssize(labels))), static_cast<LabelIndex<T>>(last));
  for (std::size_t i = 0; i < labels.size(); ++i) packed[i] = static_cast<LabelIndex<T>>(labels[i]);
  return packed;
}

template <class T>
std::vector<T> label_scores(PointLabels const& labels, Side rows, double factor) {
  std::size_t const columns = to_size(labels.costs->columns), classes = labels.centred.size();
  bool const across = rows == Side::columns;
  std::vector<T> scores(classes);
  for (std::size_t e = 0; e < classes; ++e) {
    std::size_t const k = e / columns, l = e % columns;
    scores[across ? l * (classes / columns) + k : e] = static_cast<T>(labels.centred[e] / factor);
  }
  return scores;
}

template PackedLabels<float> pack_labels<float>(std::span<std::int64_t const>);
template PackedLabels<double> pack_labels<double>(std::span<std::int64_t const>);
template std::vector<float> label_scores(PointLabels const&, Side, double);
template std::vector<double> label_scores(PointLabels const&, Side, double);

}  // namespace monge::cpu
