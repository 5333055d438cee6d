// A labelled data set, for the examples.
#pragma once
#include <algorithm>
#include <cstdint>
#include <monge/array.hpp>
#include <string>
#include <utility>
#include <vector>

#include "npy.hpp"

struct Dataset {
  std::int64_t size, dimension;
  std::vector<float> points;         // those of a class one after another
  std::vector<std::int64_t> labels;  // 0, ..., 0, 1, ..., 1, ...

  std::int64_t classes() const { return labels.back() + 1; }
  monge::MatrixView view() const { return {points.data(), size, dimension}; }
  /// No copy: the rows of one class are a matrix of their own.
  monge::MatrixView of_class(std::int64_t label) const {
    auto const [begin, end] = std::equal_range(labels.begin(), labels.end(), label);
    return {points.data() + (begin - labels.begin()) * dimension, end - begin, dimension};
  }
};

/// FOLDER/NAME.npy and FOLDER/labels_NAME.npy.
inline Dataset read_dataset(std::string const& folder, std::string const& name) {
  npy::Array<float> points = npy::read<float>(folder + "/" + name + ".npy");
  return {points.shape.at(0), points.shape.at(1), std::move(points.values),
          npy::read<std::int64_t>(folder + "/labels_" + name + ".npy").values};
}
