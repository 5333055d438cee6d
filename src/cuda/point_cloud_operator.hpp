// The entropic operator of point clouds on a CUDA device: what to launch, in which order, on which memory.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <monge/entropic.hpp>

#include "cuda/launch/softmin.hpp"
#include "cuda/launch/vectors.hpp"
#include "cuda/runtime/runtime.hpp"
#include "operators/entropic_operator.hpp"

namespace monge::cuda {

/// The matrix as the kernels see it: in place on the device, or uploaded into `staging`.
StridedView upload(std::shared_ptr<Runtime const> const& runtime, MatrixView matrix,
                   DeviceArray<unsigned char>& staging);

/// The vector as float64 on the host.
std::vector<double> read(std::shared_ptr<Runtime const> const& runtime, VectorView view);

class PointCloudOperator final : public EntropicOperator {
 public:
  PointCloudOperator(std::shared_ptr<Runtime const> runtime, PointCloud const& geometry, std::vector<double> const& a,
                     std::vector<double> const& b, Precision precision);
  ~PointCloudOperator() override;

  double centred_cost_bound() const override;
  void set_potentials(VectorView f, VectorView g) override;
  void get_potentials(MutableVectorView f, MutableVectorView g) const override;
  void sweep(Sweep const& sweep, int count) override;
  SweepErrors errors() override;
  Evaluation evaluate(double eps) override;
  void marginals(double eps, MutableVectorView row, MutableVectorView column) override;
  void softmin(Side side, double eps, MutableVectorView out) override;
  void average(Side side, double eps, MatrixView v, MutableMatrixView out, bool normalized) override;
  std::unique_ptr<EntropicOperator> with_points(Side side, MatrixView points) const override;

 private:
  /// The caller's points on the device, their weights, and the centre of both.
  struct Input {
    DeviceArray<unsigned char> staging;
    StridedView points;
    int size = 0, dimension = 0;
    std::vector<double> weight;
    DeviceArray<double> weight_memory;
    std::vector<double> centre;
  };

  /// A packed cloud and its weights; shared with the operators that with_points() makes.
  struct Cloud {
    PackedCloud packed;
    std::vector<double> centre;
    std::vector<double> weight;
    double largest_squared_norm = 0;
    bool has_idle_points = false;  // Of weight zero.
    DeviceArray<unsigned char> points, high, low;
    DeviceArray<double> weight_memory, log_weight_memory, norm_memory;
  };

  /// What belongs to one side of one problem. The shift depends on both centres.
  struct Half {
    std::shared_ptr<Cloud const> cloud;
    DeviceArray<double> shift;      // f = f' + shift
    DeviceArray<double> potential;  // f'
    double constant = 0;            // A typical value of f', in units of C.
    // For the sweeps:
    DeviceArray<unsigned char> logits;    // Of this side, for the half-step of the other.
    DeviceArray<unsigned char> partials;  // Of the half-step of this side.
    DeviceArray<double> errors;
    PinnedArray<double> host_errors;
    SoftminPlan plan;
  };

  /// The result of a half-step outside the sweeps, and what it was computed with.
  struct Transform {
    DeviceArray<SweepParameters> parameters;
    DeviceArray<unsigned char> logits;  // Of the other side.
    DeviceArray<double> plus;           // f+
    DeviceArray<double> mean;           // sum_j w_ij (t_ij - log2 b_j), if asked for.
  };

  PointCloudOperator(std::shared_ptr<Runtime const> runtime, std::int64_t n, std::int64_t m, double scale,
                     Precision precision);

  Half& half(Side side) { return halves_[side == Side::rows ? 0 : 1]; }
  Half const& half(Side side) const { return halves_[side == Side::rows ? 0 : 1]; }
  Scalar scalar() const { return precision_ == Precision::float64 ? Scalar::float64 : Scalar::float32; }
  std::int64_t scalar_bytes() const { return scalar() == Scalar::float64 ? 8 : 4; }

  /// Throws if a coordinate is not finite, naming `field`.
  Input input(char const* field, MatrixView points, std::vector<double> weight) const;
  /// Packs the points around their centre and sets this half's shift; `w` is the difference of the two centres.
  void pack(Side side, Input input, std::vector<double> const& w);
  SoftminKernel kernel(bool for_sweeps, bool moments) const;
  SoftminArguments softmin_arguments(Side side) const;
  std::vector<double> centre_difference() const;
  SweepParameters parameters_for(double eps, double relaxation) const;
  void launch_sweeps(Sweep const& sweep, int count);
  void prepare_sweeps();
  void enqueue_sweeps(bool symmetric, int count, cudaStream_t stream) const;
  void enqueue_half_step(Side side, cudaStream_t stream) const;
  void enqueue_update(Side side, bool symmetric, cudaStream_t stream) const;
  Transform transform(Side side, double eps, bool moments) const;
  DeviceArray<double> marginal_of(Side side, Transform const& transform) const;
  template <class T>
  std::vector<T> download(T const* data, std::int64_t size) const;
  void store(MutableVectorView out, double const* value, double const* shift) const;

  template <class T>
  DeviceArray<T> array(std::int64_t size) const {
    return DeviceArray<T>(runtime_, size);
  }
  template <class T>
  DeviceArray<T> uploaded(std::vector<T> const& values) const;

  std::shared_ptr<Runtime const> runtime_;
  double scale_;
  Precision precision_;
  Half halves_[2];
  DeviceArray<SweepParameters> parameters_;
  std::map<std::pair<bool, int>, Graph> graphs_;  // By symmetry and number of sweeps.
  double swept_eps_ = 0;                          // Of the last sweep; 0 if the potentials were set since.
};

}  // namespace monge::cuda
