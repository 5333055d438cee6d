#include "cuda/plan/plan_operator.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numbers.hpp"
#include "cuda/geometry/pack.hpp"
#include "cuda/plan/frozen.hpp"
#include "cuda/second_order/entry_solver.hpp"
#include "cuda/tiles/listed_hadamard.hpp"
#include "cuda/vectors/kernels.hpp"

namespace monge::cuda {
namespace {

/// Memory for entries that are not kept: 256 MiB, but at least 128 rows.
constexpr std::int64_t kPassingBytes = std::int64_t{256} << 20;

StridedView column_of(StridedView view, int p) {
  view.data = static_cast<unsigned char*>(view.data) + p * size_of(view.scalar);
  return view;
}

}  // namespace

PlanOperator::PlanOperator(Problem problem, Potentials const& potentials, double eps, double t, double cache_bytes,
                           Queue const& queue)
    : monge::PlanOperator(problem.size(Side::rows), problem.size(Side::columns)),
      problem_(std::move(problem)),
      vectors_(problem_.runtime, size(Side::rows), size(Side::columns)),
      eps_(eps),
      cache_bytes_(cache_bytes) {
  for (Side const side : kSides) {
    DeviceVector const& from = potentials[side_index(side)];
    DeviceVector& copy = potentials_[side_index(side)];
    copy = DeviceVector(problem_.runtime, size(side));
    double const change = side == Side::rows ? t : -t;
    copy.typical = from.typical + change;
    known_mean_over_least_[side_index(side)] = problem_.weights[side_index(side)]->mean_over_least();
    combine({copy.size(), 2, {{1, from.data(), nullptr}, {change, nullptr, nullptr}}, copy.data()}, queue);
  }
}

ListedTiles const* PlanOperator::tiles(Side side) {
  if (!problem_.ordering) return nullptr;
  if (!tiles_) {
    PlanTiles found(problem_, PlanTiles::Sums::listed);
    new_side_ ? found.find(*new_side_, potentials_, eps_) : found.find(potentials_, eps_);
    tiles_.emplace(std::move(found));
  }
  return &tiles_->of(side);
}

PlanOperator::Frozen& PlanOperator::frozen(Side side) {
  std::optional<Frozen>& slot = frozen_[side_index(side)];
  if (slot) return *slot;
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  PackedSide const rows = problem_.side(side), columns = problem_.side(opposite(side));
  Frozen fresh;
  DeviceArray<double>& given = transforms_[side_index(side)];
  fresh.transform = given.data() ? transform_logits(problem_, side, potentials_, eps_)
                                 : cuda::transform(problem_, side, potentials_, eps_, tiles(side));
  fresh.references = DeviceArray<unsigned char>(runtime, rows.padded_size * size_of(rows.scalar));
  fresh.share_factor = DeviceArray<double>(runtime, rows.size);
  fresh.plan_factor = DeviceArray<double>(runtime, rows.size);
  fresh.marginal = DeviceVector(runtime, rows.size);
  Transform const& softmin = fresh.transform;
  freeze_rows({side_index(side),
               rows,
               potentials_[side_index(side)].data(),
               {given.data() ? given.data() : softmin.plus.data(), softmin.reference.data(), softmin.sum.data()},
               softmin.parameters.data(),
               fresh.references.data(),
               fresh.share_factor.data(),
               fresh.plan_factor.data(),
               fresh.marginal.data()},
              runtime->stream());

  fresh.product = problem_.costs->sum_pass(side, Pass::product, tiles(side));
  fresh.partials = DeviceArray<unsigned char>(runtime, fresh.product->size() * 2 * size_of(rows.scalar));
  fresh.factors = DeviceArray<unsigned char>(runtime, columns.padded_size * size_of(rows.scalar));
  fresh.scales = DeviceArray<unsigned long long>(runtime, 2);
  MONGE_CUDA_TRY(cudaMemsetAsync(fresh.scales.data(), 0, 2 * sizeof(unsigned long long), runtime->stream()));
  PassArguments& arguments = fresh.product->arguments;
  arguments.parameters = fresh.transform.parameters.data();
  arguments.logits = fresh.transform.logits.values.data();
  arguments.factors = fresh.factors.data();
  arguments.references = fresh.references.data();
  arguments.partials = fresh.partials.data();
  if (given.data()) fresh.transform.plus = std::move(given);
  slot = std::move(fresh);
  return *slot;
}

void PlanOperator::set_transforms(Vector const& f_plus, Vector const& g_plus) {
  // Products need the sums of the pairs that they take.
  if (problem_.ordering && PlanTiles::expands(problem_, eps_)) return;
  DeviceGuard const guard(problem_.runtime->index());
  for (Side side : {Side::rows, Side::columns}) {
    DeviceVector const& from = on_device(side == Side::rows ? f_plus : g_plus);
    DeviceArray<double>& copy = transforms_[side_index(side)];
    copy = DeviceArray<double>(problem_.runtime, from.size());
    combine({from.size(), 1, {{1, from.data(), nullptr}}, copy.data()}, problem_.runtime->stream());
    frozen_[side_index(side)].reset();
  }
}

void PlanOperator::potentials(MutableVectorView f, MutableVectorView g) {
  DeviceGuard const guard(problem_.runtime->index());
  for (Side const side : kSides) {
    MutableVectorView const view = side == Side::rows ? f : g;
    if (view.empty()) continue;
    Transform const* idle = nullptr;
    std::optional<Transform> found;
    if (problem_.weights[side_index(side)]->has_idle_points()) {
      idle = &frozen(side).transform;
      // A transform set by set_transforms() is undefined at points of zero weight: compute it.
      if (!idle->sum.data()) idle = &found.emplace(cuda::transform(problem_, side, potentials_, eps_, tiles(side)));
    }
    store_potential(problem_, side, potentials_[side_index(side)], idle, view);
  }
}

void PlanOperator::transform(Side side, MutableVectorView out) {
  DeviceGuard const guard(problem_.runtime->index());
  Output output(problem_.runtime, out);
  store_vector(output.view(), problem_.size(side), 1, frozen(side).transform.plus.data(), problem_.costs->shift(side),
               problem_.runtime->stream());
  output.finish();
}

void PlanOperator::add_transform(Side side, double factor, DeviceVector& to) {
  double const* const plus = frozen(side).transform.plus.data();
  combine({to.size(),
           3,
           {{1, to.data(), nullptr}, {factor, plus, nullptr}, {factor, problem_.costs->shift(side), nullptr}},
           to.data()},
          problem_.runtime->stream());
  // A transform is near minus the other potential.
  to.typical += factor * (problem_.costs->mean_shift(side) - potentials_[side_index(opposite(side))].typical);
}

double PlanOperator::transport_cost() {
  DeviceGuard const guard(problem_.runtime->index());
  if (problem_.ordering)
    return PlanTiles(problem_, PlanTiles::Sums::listed).evaluate(potentials_, eps_, {}).transport_cost;
  return evaluate(problem_, potentials_, eps_, {}).transport_cost;
}

/// out = r (w v + origin) or w v + origin, where w are the shares.
void PlanOperator::multiply_one(Side side, Scaling scaling, StridedView const& v, double const* origin,
                                StridedView const& out) {
  Frozen& rows = frozen(side);
  cudaStream_t const stream = problem_.runtime->stream();
  int const turn = rows.products++ % 2;
  VectorScale const scale{rows.scales.data() + turn, rows.scales.data() + 1 - turn};
  scale_factors(problem_.side(opposite(side)), rows.transform.logits.factors.data(), v, scale, rows.factors.data(),
                stream);
  if (DeviceRanks const* const ranks = problem_.costs->sharing_ranks()) ranks->meet();
  rows.product->launch(stream, stream);
  bool const plan = scaling == Scaling::plan;
  finish_product(
      {
          .sums = {side_index(side), problem_.side(side), rows.partials.data(), rows.product->work(),
                   rows.transform.parameters.data()},
          .row_factor = plan ? rows.plan_factor.data() : rows.share_factor.data(),
          .scale = scale,
          .origin = origin,
          .weight = plan ? rows.marginal.data() : nullptr,
          .out = out,
      },
      stream);
}

/// The same for each column of V, one by one or through entries in memory, whichever is faster.
void PlanOperator::multiply_columns(Side side, Scaling scaling, StridedView const& v, int width, double const* origin,
                                    StridedView const& out, bool keep) {
  if (by_entries(width, keep)) return multiply_many(side, scaling, v, width, origin, out, keep, nullptr);
  for (int p = 0; p < width; ++p)
    multiply_one(side, scaling, column_of(v, p), origin ? origin + p : nullptr, column_of(out, p));
}

Vector const& PlanOperator::marginal(Side side) {
  Frozen& rows = frozen(side);
  rows.is_given = true;
  return rows.marginal;
}

/// out = P V or shares of it. Concentrated columns are multiplied one by one.
void PlanOperator::multiply_any(Side side, Scaling scaling, StridedView const& v, int width, StridedView const& out,
                                double reach) {
  std::vector<HostColumn> const columns = concentrated(side, v, width, nullptr, 0, reach);
  if (std::ssize(columns) < width) multiply_columns(side, scaling, v, width, nullptr, out, keeps_entries(side));
  for (auto const& [p, values] : columns)
    multiply_concentrated(side, scaling, values, nullptr, nullptr, 0, column_of(out, p));
}

void PlanOperator::multiply(Side side, Scaling scaling, Vector const& v, Vector& out) {
  DeviceGuard const guard(problem_.runtime->index());
  int const width = static_cast<int>(v.width());
  multiply_any(side, scaling, on_device(v).strided(), width, on_device(out).strided(),
               reach(by_entries(width, keeps_entries(side))));
  on_device(out).typical = 0;
}

void PlanOperator::multiply_gram(Side side, Vector const& w, Vector const& in, Vector& out) {
  DeviceGuard const guard(problem_.runtime->index());
  Side const other = opposite(side);
  DeviceVector& between = between_[side_index(other)];
  if (!between.data()) between = DeviceVector(problem_.runtime, problem_.size(other));
  // Conjugate gradients take many such products, which must not wait where only entries would be short of digits.
  double const reach = this->reach(false);
  multiply_any(other, Scaling::plan, on_device(in).strided(), 1, between.strided(), reach);
  vectors_.combine({{1, &between, &w}}, between);
  multiply_any(side, Scaling::plan, between.strided(), 1, on_device(out).strided(), reach);
  on_device(out).typical = 0;
}

void PlanOperator::multiply(Side side, Scaling scaling, MatrixView v, MutableMatrixView out) {
  DeviceGuard const guard(problem_.runtime->index());
  int const width = checked_size("v", v.columns());
  DeviceArray<unsigned char> staging;
  StridedView const in = upload(problem_.runtime, v, staging);
  Output output(problem_.runtime, out);
  multiply_any(side, scaling, in, width, output.view(), reach(by_entries(width, keeps_entries(side))));
  output.finish();
}

double PlanOperator::label_cost() {
  PointCosts const* const points = problem_.costs->of_points();
  if (!points) return 0;
  PointValues const rows = points->labels(Side::rows), columns = points->labels(Side::columns);
  int const width = rows.dimension;
  if (width == 0) return 0;
  DeviceGuard const guard(problem_.runtime->index());
  DeviceVector sums(problem_.runtime, size(Side::rows), width), labels(problem_.runtime, size(Side::rows), width);
  multiply_columns(Side::rows, Scaling::plan, columns.points, width, columns.centre, sums.strided(), false);
  cudaStream_t const stream = problem_.runtime->stream();
  // The features of the labels of the rows. The points are centred; adding the centre restores them.
  std::vector<double> const centre = download(*problem_.runtime, rows.centre, width);
  std::vector<double> less_centre(to_size(labels.size()));
  for (std::size_t e = 0; e < less_centre.size(); ++e) less_centre[e] = -centre[e % centre.size()];
  DeviceArray<double> const shift = uploaded(problem_.runtime, less_centre);
  load_vector(rows.points, labels.size(), width, shift.data(), labels.data(), stream);
  return points->cost().product * vectors_.dot(labels, sums);
}

void PlanOperator::weight_terms(Side side, double penalty, WeightTerms const& out) {
  DeviceGuard const guard(problem_.runtime->index());
  Frozen const& rows = frozen(side);
  cuda::weight_terms(
      {
          .points = problem_.side(side),
          .potential = potentials_[side_index(side)].data(),
          .plus = rows.transform.plus.data(),
          .shift = problem_.costs->shift(side),
          .marginal = rows.marginal.data(),
          .penalty = penalty,
          .eps = eps_,
          .other_mass = problem_.weights[side_index(opposite(side))]->total(),
          .ratio = written(out.ratio),
          .wanted = written(out.wanted),
          .gradient = written(out.gradient),
      },
      problem_.runtime->stream());
}

Operand PlanOperator::pack_rows(StridedView const& from, int rows, int padded_rows, int columns,
                                DeviceArray<unsigned char>& memory, DeviceArray<double>& divisor) {
  SharedRuntime const& runtime = problem_.runtime;
  Operand result;
  result.padded_size = padded_rows;
  result.dimension = columns;
  result.scalar = problem_.costs->scalar();
  if (result.scalar == DataType::float64) {
    result.stride = static_cast<int>(round_up(columns, 16));
    grow(runtime, memory, static_cast<std::int64_t>(padded_rows) * result.stride * 8);
    convert_matrix(from, rows, columns, reinterpret_cast<double*>(memory.data()), padded_rows, result.stride,
                   runtime->stream());
    result.points = memory.data();
    return result;
  }
  result.half_stride = half_stride_of(columns);
  std::int64_t const bytes = static_cast<std::int64_t>(padded_rows) * result.half_stride * 2;
  grow(runtime, memory, 2 * bytes);
  grow(runtime, divisor, rows);
  split_rows(
      {from, rows, padded_rows, columns, result.half_stride, memory.data(), memory.data() + bytes, divisor.data()},
      runtime->stream());
  result.high = memory.data();
  result.low = memory.data() + bytes;
  return result;
}

void PlanOperator::multiply_hadamard(Side side, Vector const& l, Vector const& r, Vector const& v, Vector& out) {
  DeviceGuard const guard(problem_.runtime->index());
  multiply_hadamard(side, on_device(l).strided(), on_device(r).strided(), static_cast<int>(l.width()),
                    on_device(v).strided(), static_cast<int>(v.width()), on_device(out).strided());
  on_device(out).typical = 0;
}

void PlanOperator::multiply_hadamard(Side side, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  int const inner = checked_size("l", l.columns()), width = checked_size("v", v.columns());
  DeviceArray<unsigned char> l_staging, r_staging, v_staging;
  Output output(runtime, out);
  multiply_hadamard(side, upload(runtime, l, l_staging), upload(runtime, r, r_staging), inner,
                    upload(runtime, v, v_staging), width, output.view());
  output.finish();
}

PlanOperator::HadamardFactors PlanOperator::hadamard_factors(Side side, StridedView const& l, StridedView const& r,
                                                             int inner) {
  Side const other = opposite(side);
  HadamardFactors factors;
  factors.left = pack_rows(l, problem_.size(side), problem_.costs->padded_size(side), inner, workspace().left,
                           workspace().left_divisor);
  factors.right = pack_rows(r, problem_.size(other), problem_.costs->padded_size(other), inner, workspace().right,
                            workspace().right_divisor);
  if (problem_.costs->scalar() == DataType::float32) {
    // Coordinates are below 2^14, so products of `inner` of them are at most 2^28 bit_ceil(inner).
    factors.factor = std::ldexp(1.0, -28) / static_cast<double>(std::bit_ceil(static_cast<unsigned>(inner)));
    factors.left_divisor = workspace().left_divisor.data();
    factors.right_divisor = workspace().right_divisor.data();
  }
  return factors;
}

void PlanOperator::multiply_hadamard(Side side, StridedView const& l, StridedView const& r, int inner,
                                     StridedView const& v, int width, StridedView const& out) {
  ListedTiles const* const listed = tiles(side);
  std::vector<HostColumn> const columns = concentrated(side, v, width, &r, inner, reach(!listed));
  if (std::ssize(columns) < width && listed) {
    Frozen const& rows = frozen(side);
    PassArguments arguments = rows.product->arguments;
    arguments.factors = rows.transform.logits.factors.data();
    launch_listed_hadamard(*listed,
                           {l, r, v, out, inner, width, rows.plan_factor.data(), problem_.side(opposite(side)).weight},
                           arguments, problem_.runtime->stream());
  } else if (std::ssize(columns) < width) {
    HadamardFactors const factors = hadamard_factors(side, l, r, inner);
    multiply_many(side, Scaling::plan, v, width, nullptr, out, false, &factors);
  }
  for (auto const& [p, values] : columns)
    multiply_concentrated(side, Scaling::plan, values, &l, &r, inner, column_of(out, p));
}

bool PlanOperator::keeps_entries(Side side) const {
  // Both sides may keep their entries, so each gets half of the cache.
  Costs const& costs = *problem_.costs;
  double const pairs = static_cast<double>(costs.padded_size(side)) * costs.padded_size(opposite(side));
  return 2 * pairs * static_cast<double>(size_of(costs.scalar())) <= cache_bytes_;
}

bool PlanOperator::by_entries(int width, bool keep) const {
  if (problem_.ordering) return false;
  PairTimes const times = problem_.costs->pair_times();
  double const read = times.read * static_cast<double>((width - 1) / 64 + 1);
  // Kept entries must save enough even if few products follow. The choice does not depend on earlier products, so the
  // same product always has the same bits.
  return width * times.pass > (keep ? 2 * read : read + times.pass + times.entries);
}

PlanOperator::Workspace& PlanOperator::workspace() {
  std::weak_ptr<void>& shared = problem_.runtime->scratch();
  workspace_ = std::static_pointer_cast<Workspace>(shared.lock());
  if (!workspace_) shared = workspace_ = std::make_shared<Workspace>();
  return *workspace_;
}

PlanOperator::EntryStore& PlanOperator::entry_store(Side side, bool keep) {
  EntryStore& store = keep ? kept_[side_index(side)] : workspace().passing;
  std::int64_t const columns = problem_.costs->padded_size(opposite(side));
  int const padded = problem_.costs->rows_of_rank(side).count;
  bool const halves = problem_.costs->scalar() == DataType::float32;
  std::int64_t const row_bytes = columns * (halves ? 4 : 8);
  std::int64_t const fitting = std::max<std::int64_t>(kPassingBytes / row_bytes / kRowPadding, 1) * kRowPadding;
  store.rows = keep ? padded : static_cast<int>(std::min<std::int64_t>(fitting, padded));
  grow(problem_.runtime, store.high, store.rows * columns * (halves ? 2 : 8));
  if (halves) grow(problem_.runtime, store.low, store.rows * columns * 2);
  grow(problem_.runtime, store.sums, store.rows);
  return store;
}

/// V^T as an operand of products with entries of `side`.
PackedValues PlanOperator::packed_values(Side side, StridedView const& v, int width, double const* divisor) {
  SharedRuntime const& runtime = problem_.runtime;
  Side const other = opposite(side);
  DataType const scalar = problem_.costs->scalar();
  bool const halves = scalar == DataType::float32;
  int const padded_count = problem_.costs->padded_size(other);
  int const padded_width = static_cast<int>(round_up(width, value_tile(width, scalar)));
  Workspace& work = workspace();
  std::int64_t const bytes = static_cast<std::int64_t>(padded_width) * padded_count * (halves ? 2 : 8);
  grow(runtime, work.values_high, bytes);
  if (halves) {
    grow(runtime, work.values_low, bytes);
    grow(runtime, work.scale, width);
    grow(runtime, work.largest, width);
  }
  PackedValues values;
  values.width = width;
  values.operand = entry_operand(padded_width, work.values_high.data(), work.values_low.data(), padded_count);
  values.scale = halves ? work.scale.data() : nullptr;
  pack_values({v, problem_.side(other).weight, divisor, problem_.size(other), padded_count, width, padded_width, scalar,
               work.largest.data(), work.scale.data(), work.values_high.data(), work.values_low.data()},
              runtime->stream());
  return values;
}

/// An operand of rows of entries, or of packed values.
Operand PlanOperator::entry_operand(int rows, void const* high, void const* low, int columns) const {
  Operand operand;
  operand.padded_size = rows;
  operand.dimension = operand.stride = operand.half_stride = columns;
  operand.scalar = problem_.costs->scalar();
  operand.points = operand.high = high;
  operand.low = low;
  return operand;
}

/// Writes `rows` rows of entries from `first` on, and their sums, to the store.
void PlanOperator::write_entries(Side side, int first, int rows, EntryStore& store) {
  Frozen& from = frozen(side);
  Costs::Launch pass = problem_.costs->launch(side, first, rows, Pass::entries);
  std::int64_t const partials = static_cast<std::int64_t>(rows) * pass.plan.work.slots;
  grow(problem_.runtime, workspace().sum_partials, partials * 2 * size_of(problem_.costs->scalar()));
  PassArguments& arguments = pass.arguments;
  arguments.parameters = from.transform.parameters.data();
  arguments.logits = from.transform.logits.values.data();
  arguments.factors = from.transform.logits.factors.data();
  arguments.references = from.references.data() + first * size_of(problem_.costs->scalar());
  arguments.partials = workspace().sum_partials.data();
  arguments.entries = store.entries(problem_.costs->scalar(), problem_.costs->padded_size(opposite(side)));
  launch_pass(pass.plan, arguments, problem_.runtime->stream());
  PackedSide points = problem_.side(side);
  points.size = points.padded_size = rows;
  row_sums({side_index(side), points, workspace().sum_partials.data(), pass.plan.work, nullptr}, store.sums.data(),
           problem_.runtime->stream());
}

/// Multiplies entries by the products of L and R, in place.
void PlanOperator::weight_entries(HadamardFactors const& hadamard, int first, int rows, Entries const& entries) {
  bool const halves = problem_.costs->scalar() == DataType::float32;
  PassArguments arguments;
  arguments.rows = hadamard.left.part(first, rows);
  arguments.columns = hadamard.right;
  arguments.factor = hadamard.factor;
  arguments.entries = entries;
  PassPlan const plan = plan_pass({Pass::hadamard, halves ? ScoreKernel::three_products : ScoreKernel::tile,
                                   ScoreForm::products, problem_.runtime->multiprocessors()},
                                  arguments.rows, arguments.columns);
  arguments.work = plan.work;
  launch_pass(plan, arguments, problem_.runtime->stream());
}

/// Sums of `rows` rows of entries times values, as arguments of store_values().
StoreValuesArguments PlanOperator::multiply_entries(Operand const& rows, PackedValues const& values) {
  SharedRuntime const& runtime = problem_.runtime;
  StoreValuesArguments result{};
  result.width = values.width;
  result.scalar = rows.scalar;
  result.scale = values.scale;
  int const padded_width = values.operand.padded_size;
  if (rows.scalar == DataType::float32) {
    EntryProductPlan const plan =
        plan_entry_product(rows.padded_size, rows.stride, padded_width, runtime->multiprocessors());
    grow(runtime, workspace().partials, plan.partial_size() * 4);
    auto* const partials = reinterpret_cast<float*>(workspace().partials.data());
    launch_entry_product(plan, {rows, values.operand, plan.column_tiles, plan.work, partials}, runtime->stream());
    result.partials = partials;
    result.tile = plan.tile;
    result.column_tiles = plan.column_tiles;
    result.work = plan.work;
    return result;
  }
  int const parts = double_product_parts(rows, values.operand, runtime->multiprocessors());
  result.sum_size = static_cast<std::int64_t>(rows.padded_size) * padded_width;
  result.parts = parts;
  grow(runtime, workspace().partials, parts * result.sum_size * 8);
  auto* const sums = reinterpret_cast<double*>(workspace().partials.data());
  launch_double_product({rows, values.operand, parts, sums}, runtime->stream());
  result.sums = sums;
  result.sum_stride = padded_width;
  return result;
}

/// out = r (E V + origin) or E V + origin, where E are the shares, through entries in memory.
void PlanOperator::multiply_many(Side side, Scaling scaling, StridedView const& v, int width, double const* origin,
                                 StridedView const& out, bool keep, HadamardFactors const* hadamard) {
  PackedValues const values = packed_values(side, v, width, hadamard ? hadamard->right_divisor : nullptr);
  int const columns = problem_.costs->padded_size(opposite(side));
  sum_entries(side, scaling, width, origin, out, keep, hadamard, [&](int, int rows, Entries const& entries) {
    return multiply_entries(entry_operand(rows, entries.high, entries.low, columns), values);
  });
}

/// The same for the sums of some rows of entries, `sums_of(first row, rows, entries)`, as arguments of store_values().
void PlanOperator::sum_entries(Side side, Scaling scaling, int width, double const* origin, StridedView const& out,
                               bool keep, HadamardFactors const* hadamard, EntrySums const& sums_of) {
  EntryStore& store = entry_store(side, keep);
  int const columns = problem_.costs->padded_size(opposite(side));
  RankPart const part = problem_.costs->rows_of_rank(side);
  Entries const entries = store.entries(problem_.costs->scalar(), columns);
  StridedView products = out;
  std::int64_t const product_bytes = width * size_of(out.scalar);  // Bytes of a row.
  DeviceRanks const* const ranks = problem_.costs->sharing_ranks();
  if (ranks) {
    frozen(side);  // A pass of all ranks.
    ranks->meet();
    grow(problem_.runtime, workspace().products, part.all * product_bytes);
    products = {workspace().products.data(), width, out.scalar};
  }
  int const end = part.first + part.count;
  for (int first = part.first; first < end; first += store.rows) {
    int const rows = std::min(store.rows, end - first);
    if (!store.complete) write_entries(side, first, rows, store);
    if (hadamard) weight_entries(*hadamard, first, rows, entries);
    StoreValuesArguments result = sums_of(first, rows, entries);
    result.rows = std::min(rows, problem_.size(side) - first);
    result.entry_sum = store.sums.data();
    result.row_factor = scaling == Scaling::plan ? frozen(side).marginal.data() + first : nullptr;
    result.row_divisor = hadamard && hadamard->left_divisor ? hadamard->left_divisor + first : nullptr;
    result.value_factor = hadamard ? 1 / hadamard->factor : 1.0;
    result.origin = origin;
    result.out = products;
    result.out.data = static_cast<unsigned char*>(products.data) + first * products.stride * size_of(products.scalar);
    store_values(result, problem_.runtime->stream());
  }
  if (ranks) {
    ranks->gather(products.data, part.each * product_bytes, problem_.runtime->stream());
    auto const bytes = to_size(product_bytes);
    MONGE_CUDA_TRY(cudaMemcpy2DAsync(out.data, to_size(out.stride * size_of(out.scalar)), products.data, bytes, bytes,
                                     to_size(problem_.size(side)), cudaMemcpyDeviceToDevice,
                                     problem_.runtime->stream()));
  }
  store.complete = keep;
}

std::unique_ptr<monge::EntrySolver> PlanOperator::entry_solver(double per_row) {
  return std::make_unique<EntrySolver>(problem_.runtime, *this, per_row);
}

std::unique_ptr<monge::PlanOperator> PlanOperator::at_eps(double eps) const {
  DeviceGuard const guard(problem_.runtime->index());
  auto plan = std::make_unique<PlanOperator>(problem_, potentials_, eps, 0, 0, problem_.runtime->stream());
  for (Side const side : kSides) plan->known_mean_over_least_[side_index(side)] = mean_over_least(side);
  return plan;
}

}  // namespace monge::cuda
