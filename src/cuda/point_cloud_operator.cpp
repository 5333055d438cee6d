#include "cuda/point_cloud_operator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include <monge/error.hpp>

#include "core/evaluation.hpp"
#include "core/points.hpp"
#include "core/strided.hpp"
#include "cuda/launch/average.hpp"
#include "cuda/launch/pack.hpp"

namespace monge::cuda {
namespace {

/// A graph holds at most this many sweeps: enough to hide what launching it costs, few enough to be recorded quickly.
constexpr int kSweepsPerGraph = 10;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

Scalar scalar_of(DataType type) {
  return type == DataType::float32 ? Scalar::float32 : Scalar::float64;
}

std::int64_t bytes_of(DataType type) {
  return type == DataType::float32 ? 4 : 8;
}

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

int side_index(Side side) {
  return side == Side::rows ? 0 : 1;
}

/// Elements between the packed rows: small dimensions as the difference kernel wants them, others in whole chunks.
int point_stride(int dimension) {
  if (dimension <= 2) return dimension;
  if (dimension <= 4) return 4;
  if (dimension <= 8) return 8;
  return static_cast<int>(round_up(dimension, 16));
}

/// The same for the fp16 parts.
int half_stride(int dimension) {
  if (dimension <= 16) return 16;
  if (dimension <= 32) return 32;
  return static_cast<int>(round_up(dimension, 64));
}

int checked_size(char const* field, std::int64_t size) {
  if (size > std::numeric_limits<int>::max() - kRowPadding)
    throw Error(ErrorCode::unsupported,
                std::string(field) + ": has " + std::to_string(size) + " points; CUDA supports less than 2^31");
  return static_cast<int>(size);
}

/// A contiguous float64 copy on the host.
std::vector<double> host_copy(Runtime const& runtime, MatrixView matrix) {
  std::vector<double> values(index(matrix.rows() * matrix.columns()));
  auto const copy = [&]<class T>(T const* data) {
    std::vector<T> raw(values.size());
    std::size_t const width = index(matrix.columns()) * sizeof(T);
    MONGE_CUDA_TRY(cudaMemcpy2DAsync(raw.data(), width, data, index(matrix.row_stride()) * sizeof(T), width,
                                     index(matrix.rows()), cudaMemcpyDefault, runtime.stream()));
    runtime.wait();
    std::copy(raw.begin(), raw.end(), values.begin());
  };
  with_data(matrix, copy);
  return values;
}

std::vector<double> difference(std::vector<double> const& p, std::vector<double> const& q) {
  std::vector<double> result(p.size());
  std::transform(p.begin(), p.end(), q.begin(), result.begin(), std::minus<>());
  return result;
}

double squared_length(std::vector<double> const& v) {
  return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
}

}  // namespace

StridedView upload(std::shared_ptr<Runtime const> const& runtime, MatrixView matrix,
                   DeviceArray<unsigned char>& staging) {
  if (matrix.device().type == DeviceType::cuda)
    return {const_cast<void*>(matrix.data()), matrix.row_stride(), scalar_of(matrix.type())};
  std::int64_t const bytes = bytes_of(matrix.type());
  std::size_t const width = index(matrix.columns() * bytes);
  staging = DeviceArray<unsigned char>(runtime, matrix.rows() * matrix.columns() * bytes);
  MONGE_CUDA_TRY(cudaMemcpy2DAsync(staging.data(), width, matrix.data(), index(matrix.row_stride() * bytes), width,
                                   index(matrix.rows()), cudaMemcpyHostToDevice, runtime->stream()));
  return {staging.data(), matrix.columns(), scalar_of(matrix.type())};
}

std::vector<double> read(std::shared_ptr<Runtime const> const& runtime, VectorView view) {
  if (view.device().type == DeviceType::cuda) {
    // A column of a matrix with the vector's stride.
    return with_data(view, [&](auto const* data) {
      return host_copy(*runtime, MatrixView(data, view.size(), 1, view.stride(), view.device()));
    });
  }
  std::vector<double> values(index(view.size()));
  with_data(view, [&](auto const* data) {
    for (std::int64_t i = 0; i < view.size(); ++i) values[index(i)] = data[i * view.stride()];
  });
  return values;
}

template <class T>
DeviceArray<T> PointCloudOperator::uploaded(std::vector<T> const& values) const {
  DeviceArray<T> result(runtime_, static_cast<std::int64_t>(values.size()));
  // From pageable memory: the call returns when the source may be reused.
  MONGE_CUDA_TRY(cudaMemcpyAsync(result.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                                 runtime_->stream()));
  return result;
}

template <class T>
std::vector<T> PointCloudOperator::download(T const* data, std::int64_t size) const {
  std::vector<T> values(index(size));
  MONGE_CUDA_TRY(
      cudaMemcpyAsync(values.data(), data, index(size) * sizeof(T), cudaMemcpyDeviceToHost, runtime_->stream()));
  runtime_->wait();
  return values;
}

PointCloudOperator::PointCloudOperator(std::shared_ptr<Runtime const> runtime, std::int64_t n, std::int64_t m,
                                       double scale, Precision precision)
    : EntropicOperator(n, m), runtime_(std::move(runtime)), scale_(scale), precision_(precision) {}

PointCloudOperator::PointCloudOperator(std::shared_ptr<Runtime const> runtime, PointCloud const& geometry,
                                       std::vector<double> const& a, std::vector<double> const& b, Precision precision)
    : PointCloudOperator(std::move(runtime), geometry.x.rows(), geometry.y.rows(), geometry.scale, precision) {
  DeviceGuard const guard(runtime_->index());
  Input x = input("x", geometry.x, a);
  Input y = input("y", geometry.y, b);
  std::vector<double> const w = difference(x.centre, y.centre);
  pack(Side::rows, std::move(x), w);
  pack(Side::columns, std::move(y), w);
  for (Half& part : halves_) {
    MONGE_CUDA_TRY(cudaMemsetAsync(part.potential.data(), 0, index(part.potential.bytes()), runtime_->stream()));
  }
  prepare_sweeps();
}

PointCloudOperator::~PointCloudOperator() {
  // Graphs may still run on memory that is about to go.
  cudaStreamSynchronize(runtime_->stream());
}

PointCloudOperator::Input PointCloudOperator::input(char const* field, MatrixView points,
                                                    std::vector<double> weight) const {
  constexpr unsigned long long kNone = std::numeric_limits<unsigned long long>::max();
  constexpr int kLeastRows = 32, kMostBlocks = 1024;
  Input result;
  result.size = checked_size(field, points.rows());
  result.dimension = checked_size("dimension", points.columns());
  result.points = upload(runtime_, points, result.staging);
  result.weight = std::move(weight);
  result.weight_memory = uploaded(result.weight);

  int const rows = std::max(kLeastRows, (result.size - 1) / kMostBlocks + 1);
  int const blocks = (result.size - 1) / rows + 1;
  std::int64_t const d = result.dimension;
  DeviceArray<double> const means = array<double>(blocks * d), totals = array<double>(blocks);
  DeviceArray<unsigned long long> const found = uploaded(std::vector<unsigned long long>{kNone});
  survey_points(
      {
          .input = result.points,
          .size = result.size,
          .dimension = result.dimension,
          .rows_per_block = rows,
          .weight = result.weight_memory.data(),
          .means = means.data(),
          .totals = totals.data(),
          .first_not_finite = found.data(),
      },
      blocks, runtime_->stream());
  if (unsigned long long const first = download(found.data(), 1)[0]; first != kNone) {
    std::int64_t const row = static_cast<std::int64_t>(first) / d, column = static_cast<std::int64_t>(first) % d;
    std::vector<double> const value = with_data(points, [&](auto const* data) {
      return host_copy(*runtime_, {data + row * points.row_stride() + column, 1, 1, 1, points.device()});
    });
    throw_not_finite(field, row, column, value[0]);
  }
  std::vector<double> const mean = download(means.data(), means.size());
  std::vector<double> const total = download(totals.data(), totals.size());
  result.centre.assign(index(d), 0.0);
  double sum = 0;
  for (int block = 0; block < blocks; ++block) {
    double const weight_of_block = total[index(block)];
    if (weight_of_block == 0) continue;
    sum += weight_of_block;
    for (std::int64_t k = 0; k < d; ++k)
      result.centre[index(k)] += (mean[index(block * d + k)] - result.centre[index(k)]) * (weight_of_block / sum);
  }
  return result;
}

void PointCloudOperator::pack(Side side, Input input, std::vector<double> const& w) {
  bool const rows = side == Side::rows;
  cudaStream_t const stream = runtime_->stream();
  auto cloud = std::make_shared<Cloud>();
  PackedCloud& packed = cloud->packed;
  packed.size = input.size;
  packed.padded_size = static_cast<int>(round_up(packed.size, kRowPadding));
  packed.dimension = input.dimension;
  packed.stride = point_stride(packed.dimension);
  packed.scalar = scalar();
  std::int64_t const padded = packed.padded_size;
  bool const products = packed.dimension > kLargestDifferenceDimension;

  cloud->points = array<unsigned char>(padded * packed.stride * scalar_bytes());
  cloud->norm_memory = array<double>(padded);
  packed.points = cloud->points.data();
  packed.norm = cloud->norm_memory.data();
  DeviceArray<double> const centre_memory = uploaded(input.centre);
  DeviceArray<double> const offset_memory = uploaded(w);
  DeviceArray<double> const squared = array<double>(packed.size);
  DeviceArray<double> const largest = array<double>(packed.size);
  half(side).shift = array<double>(packed.size);
  half(side).potential = array<double>(packed.size);
  pack_points(
      {
          .input = input.points,
          .size = packed.size,
          .padded_size = packed.padded_size,
          .dimension = packed.dimension,
          .stride = packed.stride,
          .scalar = packed.scalar,
          .centre = centre_memory.data(),
          .offset = offset_memory.data(),
          .norm_factor = products ? scale_ : 0.0,
          .shift_slope = (rows ? 2 : -2) * scale_,
          .shift_constant = rows ? scale_ * squared_length(w) : 0.0,
          .points = cloud->points.data(),
          .squared = squared.data(),
          .largest = largest.data(),
          .norm = cloud->norm_memory.data(),
          .shift = half(side).shift.data(),
      },
      stream);
  auto const largest_of = [&](DeviceArray<double> const& values) {
    std::vector<double> const host = download(values.data(), values.size());
    return *std::max_element(host.begin(), host.end());
  };
  cloud->largest_squared_norm = largest_of(squared);

  if (products && packed.scalar == Scalar::float32) {
    // The largest coordinate to [2^13, 2^14): the high parts are then far from overflow and the low parts of all but
    // very small coordinates are normal numbers.
    double const coordinate = largest_of(largest);
    packed.half_scale = coordinate > 0 ? std::ldexp(1.0, 13 - std::ilogb(coordinate)) : 1.0;
    packed.half_stride = half_stride(packed.dimension);
    cloud->high = array<unsigned char>(padded * packed.half_stride * 2);
    cloud->low = array<unsigned char>(padded * packed.half_stride * 2);
    packed.high = cloud->high.data();
    packed.low = cloud->low.data();
    split_points(
        {
            .points = static_cast<float const*>(packed.points),
            .size = packed.size,
            .padded_size = packed.padded_size,
            .stride = packed.stride,
            .half_stride = packed.half_stride,
            .half_scale = packed.half_scale,
            .norm_factor = scale_,
            .high = cloud->high.data(),
            .low = cloud->low.data(),
            .norm = cloud->norm_memory.data(),
        },
        stream);
  }

  std::vector<double> const& weight = input.weight;
  std::vector<double> log_weight(weight.size());
  std::transform(weight.begin(), weight.end(), log_weight.begin(),
                 [](double value) { return value > 0 ? std::log2(value) : 0.0; });
  cloud->has_idle_points = std::find(weight.begin(), weight.end(), 0.0) != weight.end();
  cloud->weight_memory = std::move(input.weight_memory);
  cloud->log_weight_memory = uploaded(log_weight);
  packed.weight = cloud->weight_memory.data();
  packed.log_weight = cloud->log_weight_memory.data();
  cloud->weight = std::move(input.weight);
  cloud->centre = std::move(input.centre);
  half(side).cloud = std::move(cloud);
}

SoftminKernel PointCloudOperator::kernel(bool for_sweeps, bool moments) const {
  if (moments || precision_ == Precision::float64) return SoftminKernel::tile;
  if (half(Side::rows).cloud->packed.dimension <= kLargestDifferenceDimension) return SoftminKernel::difference;
  return for_sweeps && precision_ == Precision::tf32 ? SoftminKernel::one_product : SoftminKernel::three_products;
}

SoftminArguments PointCloudOperator::softmin_arguments(Side side) const {
  SoftminArguments arguments;
  arguments.rows = half(side).cloud->packed;
  arguments.columns = half(opposite(side)).cloud->packed;
  arguments.scale = scale_;
  return arguments;
}

double PointCloudOperator::centred_cost_bound() const {
  double const reach = std::sqrt(half(Side::rows).cloud->largest_squared_norm) +
                       std::sqrt(half(Side::columns).cloud->largest_squared_norm);
  return scale_ * reach * reach;
}

void PointCloudOperator::set_potentials(VectorView f, VectorView g) {
  DeviceGuard const guard(runtime_->index());
  swept_eps_ = 0;
  for (Side side : {Side::rows, Side::columns}) {
    VectorView const view = side == Side::rows ? f : g;
    Half& target = half(side);
    std::vector<double> const& weight = target.cloud->weight;
    std::vector<double> const values = view.empty() ? std::vector<double>(weight.size()) : read(runtime_, view);
    DeviceArray<double> const source = uploaded(values);
    load_potential({source.data(), 1, Scalar::float64}, target.cloud->packed.size, target.shift.data(),
                   target.potential.data(), runtime_->stream());
    // The weighted mean of f' = f - s_i; that of s_i is s |w|^2 for the rows and 0 for the columns.
    double const mean = std::inner_product(values.begin(), values.end(), weight.begin(), 0.0) /
                        std::accumulate(weight.begin(), weight.end(), 0.0);
    target.constant = mean - (side == Side::rows ? scale_ * squared_length(centre_difference()) : 0.0);
  }
}

void PointCloudOperator::get_potentials(MutableVectorView f, MutableVectorView g) const {
  DeviceGuard const guard(runtime_->index());
  for (Side side : {Side::rows, Side::columns}) {
    MutableVectorView const view = side == Side::rows ? f : g;
    if (view.empty()) continue;
    Half const& source = half(side);
    if (swept_eps_ > 0 && source.cloud->has_idle_points) {
      // Points of no weight do not see relaxed or averaged steps: theirs is the soft c-transform of the other side.
      Transform const idle = transform(side, swept_eps_, false);
      DeviceArray<double> const chosen = array<double>(source.cloud->packed.size);
      choose_idle(source.cloud->packed, source.potential.data(), idle.plus.data(), chosen.data(), runtime_->stream());
      store(view, chosen.data(), source.shift.data());
    } else {
      store(view, source.potential.data(), source.shift.data());
    }
  }
}

void PointCloudOperator::prepare_sweeps() {
  if (parameters_.data()) return;
  for (Side side : {Side::rows, Side::columns}) {
    Half& target = half(side);
    PackedCloud const& rows = target.cloud->packed;
    std::int64_t const padded = rows.padded_size;
    target.plan =
        plan_softmin(kernel(true, false), rows, half(opposite(side)).cloud->packed, false, runtime_->multiprocessors());
    target.logits = array<unsigned char>(padded * 8);
    target.partials = array<unsigned char>(padded * target.plan.work.slots * 2 * scalar_bytes());
    target.errors = array<double>(error_parts(rows.size));
    target.host_errors = PinnedArray<double>(target.errors.size());
    MONGE_CUDA_TRY(cudaMemsetAsync(target.errors.data(), 0, index(target.errors.bytes()), runtime_->stream()));
  }
  parameters_ = array<SweepParameters>(1);
}

void PointCloudOperator::enqueue_half_step(Side side, cudaStream_t stream) const {
  SoftminArguments arguments = softmin_arguments(side);
  arguments.logits = half(opposite(side)).logits.data();
  arguments.parameters = parameters_.data();
  arguments.work = half(side).plan.work;
  arguments.partials = half(side).partials.data();
  launch_softmin(half(side).plan, arguments, stream);
}

void PointCloudOperator::enqueue_update(Side side, bool symmetric, cudaStream_t stream) const {
  Half const& target = half(side);
  update_potential(
      {
          .sums = {side_index(side), target.cloud->packed, target.partials.data(), nullptr, target.plan.work,
                   parameters_.data()},
          .potential = target.potential.data(),
          .logits = target.logits.data(),
          .errors = target.errors.data(),
          .symmetric = symmetric,
      },
      stream);
}

void PointCloudOperator::enqueue_sweeps(bool symmetric, int count, cudaStream_t stream) const {
  // The logits depend on eps, which may have changed since the last update left some; updates leave the padding alone.
  for (Side side : {Side::rows, Side::columns}) {
    Half const& source = half(side);
    make_logits({side_index(side), source.cloud->packed, source.potential.data(), parameters_.data(),
                 source.logits.data(), nullptr},
                stream);
  }
  for (int k = 0; k < count; ++k) {
    enqueue_half_step(Side::rows, stream);
    if (symmetric) {
      enqueue_half_step(Side::columns, stream);
      enqueue_update(Side::rows, symmetric, stream);
    } else {
      enqueue_update(Side::rows, symmetric, stream);
      enqueue_half_step(Side::columns, stream);
    }
    enqueue_update(Side::columns, symmetric, stream);
  }
}

std::vector<double> PointCloudOperator::centre_difference() const {
  return difference(half(Side::rows).cloud->centre, half(Side::columns).cloud->centre);
}

SweepParameters PointCloudOperator::parameters_for(double eps, double relaxation) const {
  return {eps,
          eps * std::numbers::ln2,
          std::numbers::log2e / eps,
          relaxation,
          {half(Side::rows).constant, half(Side::columns).constant}};
}

void PointCloudOperator::launch_sweeps(Sweep const& sweep, int count) {
  set_parameters(parameters_.data(), parameters_for(sweep.eps, sweep.relaxation), runtime_->stream());
  for (int left = count; left > 0;) {
    int const now = std::min(left, kSweepsPerGraph);
    auto const key = std::pair(sweep.symmetric, now);
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      found =
          graphs_
              .try_emplace(key, *runtime_, [&](cudaStream_t stream) { enqueue_sweeps(sweep.symmetric, now, stream); })
              .first;
    }
    found->second.launch(runtime_->stream());
    left -= now;
  }
}

/// The constants follow from the first half-steps on: f becomes minus the constant of g, or, when symmetric, both meet.
void PointCloudOperator::sweep(Sweep const& sweep, int count) {
  DeviceGuard const guard(runtime_->index());
  prepare_sweeps();
  double& f = half(Side::rows).constant;
  double& g = half(Side::columns).constant;
  if (!sweep.symmetric) {
    f = -g;
  } else if (f != -g && count > 0) {
    launch_sweeps(sweep, 1);
    --count;
    f = (f - g) / 2;
    g = -f;
  }
  launch_sweeps(sweep, count);
  swept_eps_ = sweep.eps;
}

SweepErrors PointCloudOperator::errors() {
  DeviceGuard const guard(runtime_->index());
  prepare_sweeps();
  for (Half const& part : halves_) {
    MONGE_CUDA_TRY(cudaMemcpyAsync(part.host_errors.data(), part.errors.data(), index(part.errors.bytes()),
                                   cudaMemcpyDeviceToHost, runtime_->stream()));
  }
  runtime_->wait();
  auto const total = [](PinnedArray<double> const& values) {
    return std::accumulate(values.data(), values.data() + values.size(), 0.0);
  };
  return {total(half(Side::rows).host_errors), total(half(Side::columns).host_errors)};
}

PointCloudOperator::Transform PointCloudOperator::transform(Side side, double eps, bool moments) const {
  cudaStream_t const stream = runtime_->stream();
  Half const& rows = half(side);
  Half const& columns = half(opposite(side));
  Transform result;
  result.parameters = array<SweepParameters>(1);
  set_parameters(result.parameters.data(), parameters_for(eps, 1.0), stream);
  result.logits = array<unsigned char>(static_cast<std::int64_t>(columns.cloud->packed.padded_size) * 8);
  DeviceArray<double> const slopes = array<double>(moments ? columns.cloud->packed.padded_size : 0);
  make_logits({side_index(opposite(side)), columns.cloud->packed, columns.potential.data(), result.parameters.data(),
               result.logits.data(), slopes.data()},
              stream);

  SoftminPlan const plan = plan_softmin(kernel(false, moments), rows.cloud->packed, columns.cloud->packed, moments,
                                        runtime_->multiprocessors());
  std::int64_t const parts = static_cast<std::int64_t>(rows.cloud->packed.padded_size) * plan.work.slots;
  DeviceArray<unsigned char> const partials = array<unsigned char>(parts * 2 * scalar_bytes());
  DeviceArray<double> const moment_sums = array<double>(moments ? parts : 0);
  SoftminArguments arguments = softmin_arguments(side);
  arguments.logits = result.logits.data();
  arguments.slopes = slopes.data();
  arguments.parameters = result.parameters.data();
  arguments.work = plan.work;
  arguments.partials = partials.data();
  arguments.moments = moment_sums.data();
  launch_softmin(plan, arguments, stream);

  result.plus = array<double>(rows.cloud->packed.size);
  if (moments) result.mean = array<double>(rows.cloud->packed.size);
  softmin_values(
      {side_index(side), rows.cloud->packed, partials.data(), moment_sums.data(), plan.work, result.parameters.data()},
      result.plus.data(), result.mean.data(), stream);
  return result;
}

DeviceArray<double> PointCloudOperator::marginal_of(Side side, Transform const& transform) const {
  Half const& rows = half(side);
  DeviceArray<double> result = array<double>(rows.cloud->packed.size);
  marginal(rows.cloud->packed, rows.potential.data(), transform.plus.data(), transform.parameters.data(), result.data(),
           runtime_->stream());
  return result;
}

/// out = value + shift, wherever it lies; shift may be null. Waits.
void PointCloudOperator::store(MutableVectorView out, double const* value, double const* shift) const {
  int const size = static_cast<int>(out.size());
  if (out.device().type == DeviceType::cuda) {
    store_vector({out.data(), out.stride(), scalar_of(out.type())}, size, value, shift, runtime_->stream());
    runtime_->wait();
    return;
  }
  DeviceArray<double> const sum = array<double>(size);
  store_vector({sum.data(), 1, Scalar::float64}, size, value, shift, runtime_->stream());
  std::vector<double> const host = download(sum.data(), size);
  write_vector(out, [&](std::int64_t i) { return host[index(i)]; });
}

Evaluation PointCloudOperator::evaluate(double eps) {
  DeviceGuard const guard(runtime_->index());
  Transform const row = transform(Side::rows, eps, true);
  Transform const column = transform(Side::columns, eps, false);
  struct Host {
    std::vector<double> marginal, potential, shift;
  };
  auto const gather = [&](Side side, Transform const& from) {
    std::int64_t const count = size(side);
    return Host{download(marginal_of(side, from).data(), count), download(half(side).potential.data(), count),
                download(half(side).shift.data(), count)};
  };
  Host const rows = gather(Side::rows, row);
  Host const columns = gather(Side::columns, column);
  std::vector<double> const norm = download(half(Side::rows).cloud->packed.norm, size(Side::rows));
  std::vector<double> const mean = download(row.mean.data(), size(Side::rows));

  // C'_ij = norm_i + g'_j - eps ln2 (t_ij - log2 b_j), summed under P.
  double row_cost = 0;
  for (std::size_t i = 0; i < norm.size(); ++i) {
    if (rows.marginal[i] > 0) row_cost += rows.marginal[i] * (norm[i] - eps * std::numbers::ln2 * mean[i]);
  }
  double const column_cost =
      std::inner_product(columns.marginal.begin(), columns.marginal.end(), columns.potential.begin(), 0.0);
  return evaluate_plan(eps, {half(Side::rows).cloud->weight, rows.marginal, rows.potential, rows.shift},
                       {half(Side::columns).cloud->weight, columns.marginal, columns.potential, columns.shift},
                       row_cost + column_cost);
}

void PointCloudOperator::marginals(double eps, MutableVectorView row, MutableVectorView column) {
  DeviceGuard const guard(runtime_->index());
  for (Side side : {Side::rows, Side::columns}) {
    MutableVectorView const view = side == Side::rows ? row : column;
    if (!view.empty()) store(view, marginal_of(side, transform(side, eps, false)).data(), nullptr);
  }
}

void PointCloudOperator::softmin(Side side, double eps, MutableVectorView out) {
  DeviceGuard const guard(runtime_->index());
  store(out, transform(side, eps, false).plus.data(), half(side).shift.data());
}

void PointCloudOperator::average(Side side, double eps, MatrixView v, MutableMatrixView out, bool normalized) {
  DeviceGuard const guard(runtime_->index());
  cudaStream_t const stream = runtime_->stream();
  Half const& rows = half(side);
  Half const& columns = half(opposite(side));
  PackedCloud const& points = columns.cloud->packed;
  Transform const softmin = transform(side, eps, false);

  // Without V the points themselves, centred: no digits are lost to the centre, which is added afterwards.
  bool const own_points = v.data() == nullptr;
  int const width = own_points ? points.dimension : checked_size("v", v.columns());
  int const value_stride = static_cast<int>(round_up(width, kValuePadding));
  DeviceArray<unsigned char> staging;
  StridedView const from = own_points ? StridedView{const_cast<void*>(points.points), points.stride, points.scalar}
                                      : upload(runtime_, v, staging);
  DeviceArray<unsigned char> const values =
      array<unsigned char>(static_cast<std::int64_t>(points.padded_size) * value_stride * scalar_bytes());
  convert_matrix(from, points.size, width, scalar(), values.data(), points.padded_size, value_stride, stream);
  DeviceArray<double> const mean = own_points ? uploaded(columns.cloud->centre) : DeviceArray<double>();
  DeviceArray<double> const row_weight = normalized ? DeviceArray<double>() : marginal_of(side, softmin);

  bool const direct = out.device().type == DeviceType::cuda;
  std::int64_t const bytes = bytes_of(out.type());
  DeviceArray<unsigned char> const result = array<unsigned char>(direct ? 0 : out.rows() * width * bytes);
  cuda::average(
      {
          .side = side_index(side),
          .rows = rows.cloud->packed,
          .columns = points,
          .logits = softmin.logits.data(),
          .plus = softmin.plus.data(),
          .parameters = softmin.parameters.data(),
          .scale = scale_,
          .values = values.data(),
          .width = width,
          .value_stride = value_stride,
          .mean = mean.data(),
          .row_weight = row_weight.data(),
          .out = direct ? StridedView{out.data(), out.row_stride(), scalar_of(out.type())}
                        : StridedView{result.data(), width, scalar_of(out.type())},
      },
      stream);
  if (!direct) {
    std::size_t const row_bytes = index(width * bytes);
    MONGE_CUDA_TRY(cudaMemcpy2DAsync(out.data(), index(out.row_stride() * bytes), result.data(), row_bytes, row_bytes,
                                     index(out.rows()), cudaMemcpyDeviceToHost, stream));
  }
  runtime_->wait();
}

std::unique_ptr<EntropicOperator> PointCloudOperator::with_points(Side side, MatrixView points) const {
  DeviceGuard const guard(runtime_->index());
  bool const rows = side == Side::rows;
  Side const other = opposite(side);
  std::int64_t const count = points.rows();
  std::unique_ptr<PointCloudOperator> result(new PointCloudOperator(
      runtime_, rows ? count : size(Side::rows), rows ? size(Side::columns) : count, scale_, precision_));
  Input fresh_input = input("points", points, std::vector<double>(index(count), 1.0));
  std::vector<double> const centre = fresh_input.centre;
  std::vector<double> const& kept_centre = half(other).cloud->centre;
  std::vector<double> const w = rows ? difference(centre, kept_centre) : difference(kept_centre, centre);
  std::vector<double> const w_before = centre_difference();
  result->pack(side, std::move(fresh_input), w);

  // The user's potential of the kept side stays, so its centred one and its shift change by opposite amounts.
  Half& kept = result->half(other);
  kept.cloud = half(other).cloud;
  kept.shift = array<double>(kept.cloud->packed.size);
  kept.potential = array<double>(kept.cloud->packed.size);
  kept.constant = half(other).constant + (rows ? 0.0 : scale_ * (squared_length(w_before) - squared_length(w)));
  std::vector<double> const change = difference(w, w_before);
  DeviceArray<double> const change_memory = uploaded(change);
  move_gauge(
      {
          .cloud = kept.cloud->packed,
          .offset = change_memory.data(),
          .shift_slope = (rows ? -2 : 2) * scale_,
          .shift_constant = rows ? 0.0 : scale_ * (squared_length(w) - squared_length(w_before)),
          .shift_in = half(other).shift.data(),
          .potential_in = half(other).potential.data(),
          .shift_out = kept.shift.data(),
          .potential_out = kept.potential.data(),
      },
      runtime_->stream());
  Half const& fresh = result->half(side);
  load_potential({}, fresh.cloud->packed.size, fresh.shift.data(), fresh.potential.data(), runtime_->stream());
  return result;
}

}  // namespace monge::cuda
