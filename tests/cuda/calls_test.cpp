// What calls ask of the device: the caller's stream, memory, and the time of the host.
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "cuda/backend.hpp"
#include "cuda/outputs.hpp"
#include "cuda/runtime/runtime.hpp"
#include "cuda/vectors/vectors.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"
#include "oracle/gate.hpp"

namespace monge::oracle {
namespace {

MutableVectorView as_vector(MutableMatrixView out) {
  return {out.as<double>(), out.rows(), 1, out.device()};
}

/// Calls of every kind that promise not to wait, from device memory to device memory. Each gives the same every time.
class Calls {
 public:
  Calls(EntropicOperator& entropic, double eps, std::int64_t d) : plan_(entropic.plan(eps)) {
    PlanOperator& plan = *plan_;
    VectorOperations const& vectors = plan.vectors();
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const n = plan.size(side), m = plan.size(other(side));
      MatrixView const one = input(m, 1), two = input(m, 2), wide = input(m, 64), l = input(n, 5), r = input(m, 5);
      add("P v", n, 1, [=, &plan](MutableMatrixView out) { plan.multiply(side, Scaling::plan, one, out); });
      add("two columns", n, 2, [=, &plan](MutableMatrixView out) { plan.multiply(side, Scaling::plan, two, out); });
      add("P V", n, 64, [=, &plan](MutableMatrixView out) { plan.multiply(side, Scaling::shares, wide, out); });
      add("P y", n, d,
          [=, &plan](MutableMatrixView out) { plan.points().multiply_points(side, Scaling::shares, out); });
      add("(P o L R^T) V", n, 64, [=, &plan](MutableMatrixView out) { plan.multiply_hadamard(side, l, r, wide, out); });
      void* const indices = const_cast<void*>(input(n, 3).data());  // As wide as float64.
      add("top 3", n, 3, [=, &plan](MutableMatrixView out) {
        plan.entries().top_k(side, {static_cast<std::int64_t*>(indices), n, 3, 3, device()}, out);
      });
      add("transform", n, 1, [=, &plan](MutableMatrixView out) { plan.transform(side, as_vector(out)); });
      add("potential", n, 1, [=, &plan](MutableMatrixView out) {
        plan.potentials(side == Side::rows ? as_vector(out) : MutableVectorView(),
                        side == Side::rows ? MutableVectorView() : as_vector(out));
      });
      add("marginal", n, 1,
          [=, &plan, &vectors](MutableMatrixView out) { vectors.write(plan.marginal(side), as_vector(out)); });
      std::shared_ptr<monge::Vector> const in = vectors.make(side), over = vectors.make(other(side)),
                                           result = vectors.make(side);
      vectors.read(VectorView(input(n, 1).as<double>(), n, 1, device()), *in);
      vectors.read(VectorView(one.as<double>(), m, 1, device()), *over);
      add("P v of vectors", n, 1, [=, &plan, &vectors](MutableMatrixView out) {
        plan.multiply(side, *over, *result);
        vectors.write(*result, as_vector(out));
      });
      add("P diag(w) P^T v", n, 1, [=, &plan, &vectors](MutableMatrixView out) {
        plan.multiply_gram(side, *over, *in, *result);
        vectors.write(*result, as_vector(out));
      });
    }
    std::shared_ptr<monge::Vector> const zeros = vectors.make(Side::rows);  // Indices too.
    std::int64_t const n = plan.size(Side::rows);
    add("entries at pairs", n, 1, [=, &plan, &vectors](MutableMatrixView out) {
      auto const* const data = reinterpret_cast<std::int64_t const*>(cuda::on_device(std::as_const(*zeros)).data());
      IndexView const indices{data, n, 1, device()};
      plan.entries().entries_at(indices, indices, as_vector(out));
    });
    std::shared_ptr<monge::Vector> const f = vectors.make(Side::rows), g = vectors.make(Side::columns);
    for (Sweep const& kind : {Sweep{eps}, Sweep{eps, true}, Sweep{eps, false, 1.5}}) {
      add("sweeps", plan.size(Side::rows), 1, [=, &entropic, &vectors](MutableMatrixView out) {
        Term const zero_f{1, f.get()}, zero_g{1, g.get()};
        vectors.combine({&zero_f, 1}, entropic.potential(Side::rows));
        vectors.combine({&zero_g, 1}, entropic.potential(Side::columns));
        entropic.sweep(kind, 10);
        entropic.get_potentials(as_vector(out), {});
      });
    }
    check(cudaDeviceSynchronize());
  }

  void run() {
    for (Call& call : calls_) call.run(call.out->mutable_matrix());
  }
  /// Calls visit(name, run) for each.
  template <class Visit>
  void for_each(Visit&& visit) {
    for (Call& call : calls_) visit(call.name, [&] { call.run(call.out->mutable_matrix()); });
  }
  void poison() {
    for (Call& call : calls_) call.out->fill(kPoison);
  }
  /// Names of the calls whose outputs are no longer all poison.
  std::vector<std::string> written() {
    std::vector<std::string> result;
    for (Call& call : calls_) {
      for (double const value : call.out->values()) {
        if (value == kPoison) continue;
        result.emplace_back(call.name);
        break;
      }
    }
    return result;
  }
  std::vector<std::vector<double>> values() {
    std::vector<std::vector<double>> result;
    for (Call& call : calls_) result.push_back(call.out->values());
    return result;
  }

 private:
  struct Call {
    char const* name;
    std::function<void(MutableMatrixView)> run;
    std::unique_ptr<OnDevice<double>> out;
  };
  static Device device() { return {DeviceType::cuda, 0}; }

  MatrixView input(std::int64_t rows, std::int64_t columns) {
    std::vector<double> const values = gaussian_points(rows, columns, random_);
    inputs_.push_back(std::make_unique<OnDevice<double>>(values, rows, columns));
    check(cudaDeviceSynchronize());  // The caller's stream does not wait for copies on the default one.
    return inputs_.back()->matrix();
  }
  void add(char const* name, std::int64_t rows, std::int64_t columns, std::function<void(MutableMatrixView)> run) {
    std::vector<double> const poison(static_cast<std::size_t>(rows * columns), kPoison);
    calls_.push_back({name, std::move(run), std::make_unique<OnDevice<double>>(poison, rows, columns)});
  }

  Random random_{4};
  std::unique_ptr<PlanOperator> plan_;
  std::vector<std::unique_ptr<OnDevice<double>>> inputs_;
  std::vector<Call> calls_;
};

class DeviceCalls : public BackendTest {
 protected:
  /// Calls check(entropic, eps, d) for operators in `where` with costs of both forms, with memory for entries and
  /// without.
  template <class Check>
  void for_each_operator(Context const& where, Check const& check) {
    for (std::int64_t const d : {3, 40}) {
      for (double const cache_bytes : {0.0, 1e9}) {
        SCOPED_TRACE(testing::Message() << "d " << d << ", cache " << cache_bytes);
        Problem const problem = make_problem({300, 400, d});
        auto const entropic =
            backend_of(where).entropic_operator(problem.geometry(), {problem.a, problem.b}, {precision(), cache_bytes});
        check(*entropic, 0.05 * Magnitudes(problem).spread(), d);
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, DeviceCalls,
                         testing::Values(Target{DeviceType::cuda, Precision::float32},
                                         Target{DeviceType::cuda, Precision::float64}),
                         target_name);

TEST_P(DeviceCalls, run_on_the_stream_of_the_caller) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<std::vector<std::vector<double>>> expected;
  for_each_operator(context(), [&](EntropicOperator& entropic, double eps, std::int64_t d) {
    Calls calls(entropic, eps, d);
    calls.run();
    check(cudaDeviceSynchronize());
    expected.push_back(calls.values());
  });
  auto next = expected.begin();
  for_each_operator(Context::cuda({.stream = stream}), [&](EntropicOperator& entropic, double eps, std::int64_t d) {
    Calls calls(entropic, eps, d);
    calls.run();  // The first of a kind may wait: it allocates, records graphs and loads kernels.
    check(cudaStreamSynchronize(stream));
    EXPECT_EQ(calls.values(), *next);
    calls.poison();
    check(cudaDeviceSynchronize());
    Gate gate(stream);
    calls.run();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // Time for what runs on another stream.
    EXPECT_EQ(calls.written(), std::vector<std::string>()) << "while the stream is held up";
    gate.open();
    check(cudaStreamSynchronize(stream));
    EXPECT_EQ(calls.values(), *next++);
  });
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  check(cudaStreamDestroy(stream));
}

TEST_P(DeviceCalls, like_earlier_ones_neither_allocate_nor_wait) {
  cuda::RuntimeCounters const& counters = cuda::runtime_of(context()).counters();
  for_each_operator(context(), [&](EntropicOperator& entropic, double eps, std::int64_t d) {
    std::int64_t const before = counters.allocations;
    Calls calls(entropic, eps, d);
    calls.run();
    EXPECT_GT(counters.allocations, before);
    calls.for_each([&](char const* name, auto const& run) {
      cuda::RuntimeCounters const first = counters;
      run();
      run();
      EXPECT_EQ(counters.allocations, first.allocations) << name;
      EXPECT_EQ(counters.waits, first.waits) << name;
    });
  });
}

TEST_P(DeviceCalls, give_all_memory_back) {
  Pool pool;
  std::optional<Context> own = Context::cuda({.allocator = pool.allocator()});
  for_each_operator(*own, [&](EntropicOperator& entropic, double eps, std::int64_t d) {
    Calls calls(entropic, eps, d);
    calls.run();
    std::unique_ptr<PlanOperator> const plan = entropic.plan(eps);
    Stored const points(std::vector<double>(static_cast<std::size_t>(7 * d), 0.5), 7, d);
    std::vector<double> out(7);
    plan->points().at(Side::rows, {points.view()})->transform(Side::rows, out);
    EXPECT_EQ(cuda::runtime_of(*own).counters().allocations, pool.allocations);
    EXPECT_FALSE(pool.out.empty());
  });
  EXPECT_GT(pool.allocations, 0);
  EXPECT_TRUE(pool.out.empty());
  EXPECT_EQ(pool.wrong_releases, 0);
  EXPECT_EQ(pool.bytes, 0u);
  own.reset();
  check(cudaDeviceSynchronize());
}

TEST_P(DeviceCalls, of_several_plans_share_the_memory_of_products_and_selections) {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20;
  constexpr std::int64_t kWidth = 64;
  Pool pool;
  {
    Context const own = Context::cuda({.allocator = pool.allocator()});
    std::vector<Problem> const problems{make_problem({9000, 8900, 64}),
                                        make_problem({.n = 9000, .m = 8900, .d = 64, .seed = 3})};
    std::vector<std::unique_ptr<PlanOperator>> plans;
    for (Problem const& problem : problems) {
      plans.push_back(backend_of(own)
                          .entropic_operator(problem.geometry(), {problem.a, problem.b}, {precision(), 0})
                          ->plan(0.05 * Magnitudes(problem).spread()));
    }
    Random random(6);
    std::vector<double> const v = gaussian_points(8900, kWidth, random);
    auto const results = [&](PlanOperator& plan) {
      std::vector<double> out(9000 * kWidth), values(9000 * 3);
      std::vector<std::int64_t> indices(values.size());
      plan.multiply(Side::rows, Scaling::plan, {v.data(), 8900, kWidth}, {out.data(), 9000, kWidth});
      plan.entries().top_k(Side::rows, {indices.data(), 9000, 3, 3, {}}, {values.data(), 9000, 3});
      out.insert(out.end(), values.begin(), values.end());
      return out;
    };
    std::vector<double> const first = results(*plans[0]);
    std::size_t const before = pool.bytes;
    EXPECT_GT(before, 256 * kMebibyte);
    std::vector<double> const second = results(*plans[1]);
    EXPECT_LT(pool.bytes, before + 64 * kMebibyte);
    EXPECT_EQ(results(*plans[0]), first);
    plans[0].reset();
    EXPECT_GT(pool.bytes, 256 * kMebibyte) << "the other plan goes on";
    EXPECT_EQ(results(*plans[1]), second);
    plans.clear();
    EXPECT_LT(pool.bytes, 64 * kMebibyte);
  }
  EXPECT_TRUE(pool.out.empty());
}

/// The most memory that a solve of n x n points and products with its plan hold at a time.
double most_bytes_of_a_solve(Precision precision, std::int64_t n) {
  Pool pool;
  {
    Context const context = Context::cuda({.allocator = pool.allocator()});
    Problem const problem = make_problem({n, n, 8});
    SolveOptions const options{
        .eps = 1, .tolerance = 0, .iterations = 3, .annealing = 1, .precision = precision, .cache_bytes = 0};
    Plan const plan = solve(context, problem.geometry(), problem.a, problem.b, options);
    std::vector<double> out(static_cast<std::size_t>(n)), marginal(out.size());
    plan.apply(MatrixView(problem.a.data(), n, 1), MutableMatrixView(out.data(), n, 1));
    plan.apply_gram(problem.a, problem.b, out);
    plan.marginals(out, marginal);
  }
  check(cudaDeviceSynchronize());
  return static_cast<double>(pool.most_bytes);
}

// Four times the points: a part that is quadratic would grow 16 times. With fewer of them the partial sums grow faster
// than the points, as more blocks of the device find work.
TEST_P(DeviceCalls, of_a_solve_take_memory_linear_in_the_number_of_points) {
  double const small = most_bytes_of_a_solve(precision(), 8000), large = most_bytes_of_a_solve(precision(), 32000);
  EXPECT_LT(large, 4.5 * small);
  EXPECT_LT(large, 0.02 * 32000 * 32000 * sizeof(float));
}

}  // namespace
}  // namespace monge::oracle
