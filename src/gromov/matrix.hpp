// Small dense matrices on the host.
#pragma once
// Another name for Eigen's namespace: see second_order/sparse_factor.cpp.
#define Eigen monge_eigen
#define EIGEN_MPL2_ONLY
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Dense>
#include <monge/array.hpp>

namespace monge {

using DenseMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using DenseVector = Eigen::VectorXd;

inline MatrixView view_of(DenseMatrix const& matrix) {
  return {matrix.data(), matrix.rows(), matrix.cols()};
}
inline MutableMatrixView view_of(DenseMatrix& matrix) {
  return {matrix.data(), matrix.rows(), matrix.cols()};
}
inline VectorView view_of(DenseVector const& vector) {
  return {vector.data(), vector.size()};
}
inline MutableVectorView view_of(DenseVector& vector) {
  return {vector.data(), vector.size()};
}

}  // namespace monge
