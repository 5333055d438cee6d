// What a call may say. Every message is one line with the field, its value and what is allowed.
#pragma once
#include <vector>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

struct Weights {
  std::vector<double> a, b;
  double mass;
};

void validate(SolveOptions const& options);
/// Shapes, strides, pointers and the scale; the values of the points are checked where they are read, while packing.
void validate(PointCloud const& geometry, Device context);
/// A view that a caller wants written or read: shape, pointer, stride, and that `context` can reach it. Host memory is
/// within reach of every context, device memory only of a context on that device.
void validate_matrix(char const* field, MatrixView view, std::int64_t rows, std::int64_t columns, Device context);
void validate_vector(char const* field, VectorView view, std::int64_t size, Device context);
/// A warm start: its shape, and that every entry is finite.
void validate_potential(char const* field, Backend const& backend, VectorView view, std::int64_t size);

/// Reads, checks and completes the weights: an empty one is uniform.
Weights validated_weights(Backend const& backend, VectorView a, VectorView b, std::int64_t n, std::int64_t m,
                          double tolerance);

}  // namespace monge
