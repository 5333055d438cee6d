// Times of the passes over all pairs on a CUDA device, beside the ceilings of the machine it ran on. Prints JSON.
//
//   cuda_passes [section...]      of cost_matrices, evaluations, half_steps, plan_products, plan_entries; all without
//   one
//
// A half-step takes n m exponentials and products n m (2 d) flop of scores (three times that in float32, d > 8); it is
// timed from its graphs. Products of the plan: P v (one vector), the Gram product P^T (w o (P v)), P V and the Hadamard
// product with 64 columns and inner width 64, with nothing kept between products, and P V with the entries kept.
// Entries of the plan: the k largest of each row, those above a threshold counted, draws. Evaluations of a plan on a
// cost matrix or on points, in float64 with both marginals, are whole calls: the host has the values when one ends. The
// ceilings are
// measured in the same run: exponentials (ex2.approx), fp16 products (mma.sync m16n8k16 from registers), copies.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda_limits.cuh"
#include "seam/backend.hpp"

namespace {

using namespace monge;
using monge::bench::median_ms;
using monge::cuda::Stream;

/// Standard normal numbers in device memory. They begin anew after a period that no row divides: drawing 1e8 of them
/// would take longer than what is timed.
template <class T>
class Normal {
 public:
  Normal(std::int64_t rows, std::int64_t columns, unsigned seed) : rows_(rows), columns_(columns) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<T> host(static_cast<std::size_t>(rows * columns));
    constexpr std::size_t kPeriod = 1048583;  // A prime.
    for (std::size_t k = 0; k < host.size(); ++k) host[k] = k < kPeriod ? normal(random) : host[k - kPeriod];
    MONGE_CUDA_TRY(cudaMalloc(&data_, host.size() * sizeof(T)));
    MONGE_CUDA_TRY(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~Normal() { cudaFree(data_); }
  Normal(Normal const&) = delete;
  Normal& operator=(Normal const&) = delete;
  MatrixView view() const { return {data_, rows_, columns_, columns_, {DeviceType::cuda, 0}}; }
  MutableMatrixView mutable_view() { return {data_, rows_, columns_, columns_, {DeviceType::cuda, 0}}; }

 private:
  std::int64_t rows_, columns_;
  T* data_ = nullptr;
};

/// Uninitialised, in device memory.
class Indices {
 public:
  Indices(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {
    MONGE_CUDA_TRY(cudaMalloc(&data_, static_cast<std::size_t>(rows * columns) * sizeof(std::int64_t)));
  }
  ~Indices() { cudaFree(data_); }
  Indices(Indices const&) = delete;
  Indices& operator=(Indices const&) = delete;
  MutableIndexView view() { return {data_, rows_, columns_, columns_, {DeviceType::cuda, 0}}; }

 private:
  std::int64_t rows_, columns_;
  std::int64_t* data_ = nullptr;
};

/// Median microseconds of a call, after a few.
template <class Call>
double median_us(cudaStream_t stream, Call&& call) {
  double const once = median_ms(stream, 3, call);
  return 1000 * median_ms(stream, std::clamp(static_cast<int>(400 / once), 3, 50), call);
}

class Bench {
 public:
  /// The geometry must outlive this; `eps` must suit its costs.
  Bench(Backend const& backend, cudaStream_t stream, int n, Geometry const& geometry, double eps, Precision precision,
        double cache_bytes)
      : stream_(stream), n_(n), eps_(eps) {
    std::vector<double> const weight(static_cast<std::size_t>(n), 1.0 / n);
    problem_ = backend.entropic_operator(geometry, {weight, weight}, {precision, cache_bytes});
  }

  double half_step_us() { return sweep_us({.eps = eps_}) / 2; }
  double sweep_us(Sweep const& sweep) {
    double const us = time([&] { problem_->sweep(sweep, 10); }) / 10;
    SweepErrors const errors = problem_->errors();
    if (!(errors.column < 1)) std::fprintf(stderr, "n %d: column error %g\n", n_, errors.column);
    return us;
  }

  void make_plan() {
    problem_->sweep({.eps = eps_}, 10);
    plan_ = problem_->plan(eps_);
    for (auto* vector : {&v_, &product_}) *vector = plan_->vectors().make(vector == &v_ ? Side::columns : Side::rows);
    column_ = plan_->vectors().make(Side::columns);
    std::vector<double> values(static_cast<std::size_t>(n_));
    std::mt19937 random(3);
    for (double& value : values) value = std::normal_distribution<double>()(random);
    plan_->vectors().read(values, *v_);
  }
  double vector_us() {
    return time([&] { plan_->multiply(Side::rows, *v_, *product_); });
  }
  double gram_us() {
    Vector const& w = plan_->marginal(Side::rows);
    return time([&] { plan_->multiply_gram(Side::columns, w, *v_, *column_); });
  }
  double matrix_us(int width) {
    Normal<float> const v(n_, width, 4);
    Normal<float> out(n_, width, 5);
    return time([&] { plan_->multiply(Side::rows, Scaling::plan, v.view(), out.mutable_view()); });
  }
  double hadamard_us(int width) {
    Normal<float> const v(n_, width, 4), l(n_, width, 6), r(n_, width, 7);
    Normal<float> out(n_, width, 5);
    return time([&] { plan_->multiply_hadamard(Side::rows, l.view(), r.view(), v.view(), out.mutable_view()); });
  }
  double top_k_us(Side side, int k) {
    Indices indices(n_, k);
    Normal<float> values(n_, k, 8);
    return time([&] { plan_->entries().top_k(side, indices.view(), values.mutable_view()); });
  }
  /// Entries that are at least ten times the mean.
  double count_above_us() {
    Indices row_begin(n_ + 1, 1);
    return time([&] { plan_->entries().count_above(10.0 / n_ / n_, row_begin.view()); });
  }
  double sample_us(std::int64_t count) {
    Indices pairs(count, 2);
    return time([&] { plan_->entries().sample(9, pairs.view()); });
  }

 private:
  template <class Call>
  double time(Call&& call) {
    return median_us(stream_, call);
  }

  cudaStream_t stream_;
  int n_;
  double eps_;
  std::unique_ptr<EntropicOperator> problem_;
  std::unique_ptr<PlanOperator> plan_;
  std::unique_ptr<Vector> v_, product_, column_;
};

/// Two clouds of normal points.
struct Clouds {
  Clouds(int n, int d) : x(n, d, 1), y(n, d, 2), eps(0.1 * d) {}
  PointCloud geometry() const { return {x.view(), y.view()}; }
  Normal<float> x, y;
  double eps;
};

char const* name_of(Precision precision) {
  return name(precision).data();
}

/// What the sections are measured on and beside.
struct Machine {
  Backend const& backend;
  cudaStream_t stream;
  double exp_rate, double_exp_rate, mma_rate, read_rate;
};

/// One list of the output. Each record is there as soon as it is whole.
class Section {
 public:
  explicit Section(char const* name) { std::printf(",\n  \"%s\": [", name); }
  ~Section() {
    std::printf("\n  ]");
    std::fflush(stdout);
  }
  Section(Section const&) = delete;
  Section& operator=(Section const&) = delete;
  void next_record() {
    std::fflush(stdout);
    std::printf("%s\n    ", first_ ? "" : ",");
    first_ = false;
  }

 private:
  bool first_ = true;
};

/// Sweeps on a cost matrix beside the time of reading it and of its exponentials; and a pass, as products are.
template <class T>
void print_matrix(Machine const& machine, int n, Precision precision, bool transposed) {
  Normal<T> const cost(n, n, 1);
  constexpr double kEps = 0.1;
  Bench bench(machine.backend, machine.stream, n, CostMatrix{cost.view(), transposed}, kEps, precision, 0);
  double const pairs = static_cast<double>(n) * n;
  double const exp_rate = precision == Precision::float32 ? machine.exp_rate : machine.double_exp_rate;
  double const read_us = 1e6 * pairs * sizeof(T) / machine.read_rate, exp_us = 1e6 * pairs / exp_rate;
  double const alternating = bench.sweep_us({.eps = kEps});
  double const overrelaxed = bench.sweep_us({.eps = kEps, .relaxation = 1.3});
  double const symmetric = bench.sweep_us({.eps = kEps, .symmetric = true});
  bench.make_plan();
  std::printf(
      "{\"n\": %d, \"storage\": \"float%d\", \"precision\": \"%s\", \"transposed\": %s, \"read_us\": %.1f, "
      "\"exp_us\": %.1f, \"alternating_us\": %.1f, \"overrelaxed_us\": %.1f, \"symmetric_us\": %.1f, "
      "\"sweep_over_floor\": %.2f, \"vector_us\": %.1f, \"gram_us\": %.1f, \"matrix_64_us\": %.1f}",
      n, static_cast<int>(8 * sizeof(T)), name_of(precision), transposed ? "true" : "false", read_us, exp_us,
      alternating, overrelaxed, symmetric, std::max(alternating, overrelaxed) / std::max(read_us, exp_us),
      bench.vector_us(), bench.gram_us(), bench.matrix_us(64));
}

void cost_matrices(Machine const& machine, Section& section) {
  for (int n : {10000, 5000, 2000, 1000}) {
    for (bool transposed : {false, true}) {
      if (transposed && n != 10000) continue;
      for (Precision precision : {Precision::float32, Precision::float64}) {
        section.next_record();
        print_matrix<float>(machine, n, precision, transposed);
        section.next_record();
        print_matrix<double>(machine, n, precision, transposed);
      }
    }
  }
}

/// An evaluation of a plan on a cost matrix beside the time of reading it once and of its exponentials.
template <class T>
void print_evaluation(Machine const& machine, int n, int m) {
  Normal<T> const cost(n, m, 1);
  constexpr double kEps = 0.1;
  Marginals const marginals{std::vector<double>(static_cast<std::size_t>(n), 1.0 / n),
                            std::vector<double>(static_cast<std::size_t>(m), 1.0 / m)};
  auto const problem = machine.backend.entropic_operator(CostMatrix{cost.view()}, marginals, {Precision::float64, 0});
  problem->sweep({.eps = kEps}, 3);
  auto const row = problem->vectors().make(Side::rows), column = problem->vectors().make(Side::columns);
  double const us = median_us(machine.stream, [&] { problem->evaluate(kEps, row.get(), column.get()); });
  double const pairs = static_cast<double>(n) * m;
  double const read_us = 1e6 * pairs * sizeof(T) / machine.read_rate, exp_us = 1e6 * pairs / machine.double_exp_rate;
  std::printf(
      "{\"n\": %d, \"m\": %d, \"storage\": \"float%d\", \"read_us\": %.1f, \"exp_us\": %.1f, "
      "\"evaluate_us\": %.1f, \"share_of_limit\": %.2f}",
      n, m, static_cast<int>(8 * sizeof(T)), read_us, exp_us, us, std::max(read_us, exp_us) / us);
}

/// An evaluation of a plan of points beside the time of its exponentials.
void print_point_evaluation(Machine const& machine, int n, int d) {
  Clouds const clouds(n, d);
  std::vector<double> const weight(static_cast<std::size_t>(n), 1.0 / n);
  auto const problem = machine.backend.entropic_operator(clouds.geometry(), {weight, weight}, {Precision::float64, 0});
  problem->sweep({.eps = clouds.eps}, 3);
  auto const row = problem->vectors().make(Side::rows), column = problem->vectors().make(Side::columns);
  double const us = median_us(machine.stream, [&] { problem->evaluate(clouds.eps, row.get(), column.get()); });
  std::printf("{\"n\": %d, \"d\": %d, \"exp_us\": %.1f, \"evaluate_us\": %.1f}", n, d,
              1e6 * n * n / machine.double_exp_rate, us);
}

void evaluations(Machine const& machine, Section& section) {
  for (auto const& [n, m] : {std::pair{6400, 4800}, std::pair{10000, 10000}}) {
    section.next_record();
    print_evaluation<double>(machine, n, m);
    section.next_record();
    print_evaluation<float>(machine, n, m);
  }
  for (int d : {3, 16, 64, 512}) {
    section.next_record();
    print_point_evaluation(machine, 10000, d);
  }
}

struct Case {
  int n, d;
  Precision precision;
};

void half_steps(Machine const& machine, Section& section) {
  std::vector<Case> cases;
  for (int d : {3, 4, 8, 16, 64, 128, 512}) {
    cases.push_back({10000, d, Precision::float32});
    cases.push_back({10000, d, Precision::tf32});
  }
  for (int n : {1000, 5000}) cases.push_back({n, 64, Precision::float32});
  cases.push_back({10000, 64, Precision::float64});
  cases.push_back({50000, 64, Precision::tf32});
  cases.push_back({50000, 64, Precision::float32});
  cases.push_back({100000, 3, Precision::float32});
  for (Case const& one : cases) {
    section.next_record();
    Clouds const clouds(one.n, one.d);
    double const us =
        Bench(machine.backend, machine.stream, one.n, clouds.geometry(), clouds.eps, one.precision, 0).half_step_us();
    double const pairs = static_cast<double>(one.n) * one.n;
    bool const products_used = one.d > 8 && one.precision != Precision::float64;
    double const flop = products_used ? pairs * 2 * one.d * (one.precision == Precision::tf32 ? 1 : 3) : 0;
    std::printf(
        "{\"n\": %d, \"d\": %d, \"precision\": \"%s\", \"us\": %.2f, \"exp_floor_us\": %.2f, "
        "\"mma_floor_us\": %.2f}",
        one.n, one.d, name_of(one.precision), us, 1e6 * pairs / machine.exp_rate, 1e6 * flop / machine.mma_rate);
  }
}

void plan_products(Machine const& machine, Section& section) {
  for (Case const& one : {Case{10000, 3, Precision::float32}, Case{10000, 64, Precision::float32},
                          Case{10000, 512, Precision::float32}, Case{10000, 64, Precision::float64}}) {
    section.next_record();
    Clouds const clouds(one.n, one.d);
    Bench streamed(machine.backend, machine.stream, one.n, clouds.geometry(), clouds.eps, one.precision, 0);
    double const half_step = streamed.half_step_us();
    streamed.make_plan();
    std::printf(
        "{\"n\": %d, \"d\": %d, \"precision\": \"%s\", \"half_step_us\": %.1f, \"vector_us\": %.1f, "
        "\"gram_us\": %.1f",
        one.n, one.d, name_of(one.precision), half_step, streamed.vector_us(), streamed.gram_us());
    for (int width : {3, 64, 512}) std::printf(", \"matrix_%d_us\": %.1f", width, streamed.matrix_us(width));
    std::printf(", \"hadamard_64_us\": %.1f", streamed.hadamard_us(64));
    Bench kept(machine.backend, machine.stream, one.n, clouds.geometry(), clouds.eps, one.precision, 8e9);
    kept.make_plan();
    std::printf(", \"kept\": {\"vector_us\": %.1f, \"gram_us\": %.1f, \"matrix_64_us\": %.1f}}", kept.vector_us(),
                kept.gram_us(), kept.matrix_us(64));
  }
}

void plan_entries(Machine const& machine, Section& section) {
  for (Case const& one :
       {Case{10000, 3, Precision::float32}, Case{10000, 64, Precision::float32}, Case{10000, 64, Precision::float64}}) {
    section.next_record();
    Clouds const clouds(one.n, one.d);
    Bench bench(machine.backend, machine.stream, one.n, clouds.geometry(), clouds.eps, one.precision, 0);
    double const half_step = bench.half_step_us();
    bench.make_plan();
    std::printf("{\"n\": %d, \"d\": %d, \"precision\": \"%s\", \"half_step_us\": %.1f", one.n, one.d,
                name_of(one.precision), half_step);
    for (int k : {1, 32, 64, 65, 1000}) std::printf(", \"top_%d_us\": %.1f", k, bench.top_k_us(Side::rows, k));
    std::printf(", \"top_32_transpose_us\": %.1f", bench.top_k_us(Side::columns, 32));
    std::printf(", \"count_above_us\": %.1f", bench.count_above_us());
    for (int count : {10000, 1000000}) std::printf(", \"sample_%d_us\": %.1f", count, bench.sample_us(count));
    std::printf("}");
  }
}

struct NamedSection {
  char const* name;
  void (*print)(Machine const&, Section&);
};
constexpr NamedSection kSections[] = {{"cost_matrices", cost_matrices},
                                      {"evaluations", evaluations},
                                      {"half_steps", half_steps},
                                      {"plan_products", plan_products},
                                      {"plan_entries", plan_entries}};

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> const wanted(argv + 1, argv + argc);
  for (std::string const& name : wanted) {
    bool const known = std::any_of(std::begin(kSections), std::end(kSections),
                                   [&](NamedSection const& section) { return name == section.name; });
    if (known) continue;
    std::fprintf(stderr, "%s: is no section; must be one of", name.c_str());
    for (NamedSection const& section : kSections) std::fprintf(stderr, " %s", section.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  Stream const stream(cudaStreamNonBlocking);
  Context const context = Context::cuda({.stream = stream.get()});
  Backend const& backend = backend_of(context);
  int const units = backend.info().units;

  float* memory = nullptr;
  std::size_t const copy_bytes = std::size_t{2} << 30;
  MONGE_CUDA_TRY(cudaMalloc(&memory, 2 * copy_bytes));
  MONGE_CUDA_TRY(cudaMemset(memory, 1, 2 * copy_bytes));
  Machine const machine{
      .backend = backend,
      .stream = stream.get(),
      .exp_rate = bench::exp2_rate(stream.get(), units, memory),
      .double_exp_rate = bench::double_exp2_rate(stream.get(), units, reinterpret_cast<double*>(memory)),
      .mma_rate = bench::fp16_product_rate(stream.get(), units, memory),
      .read_rate = bench::read_rate(stream.get(), units, memory, memory, copy_bytes),
  };
  double const copy_rate =
      bench::copy_rates(stream.get(), units, memory, reinterpret_cast<char*>(memory) + copy_bytes, copy_bytes).memcpy;
  MONGE_CUDA_TRY(cudaFree(memory));
  std::printf(
      "{\n  %s,\n  \"ceilings\": {\"exp2_per_s\": %.4g, \"fp16_mma_flop_per_s\": %.4g, "
      "\"copy_bytes_per_s\": %.4g, \"read_bytes_per_s\": %.4g, \"double_exp2_per_s\": %.4g}",
      bench::provenance(0).c_str(), machine.exp_rate, machine.mma_rate, copy_rate, machine.read_rate,
      machine.double_exp_rate);
  for (NamedSection const& one : kSections) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), one.name) == wanted.end()) continue;
    Section section(one.name);
    one.print(machine, section);
  }
  std::printf("\n}\n");
  return 0;
}
