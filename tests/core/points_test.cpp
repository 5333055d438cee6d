// Centres of clouds, and names of things.
#include "geometry/points.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/problem.hpp"

namespace monge::oracle {
namespace {

TEST(CentreOf, is_the_weighted_mean) {
  std::vector<double> const points{0, 1, 2, 5, 100, -100};
  Stored const cloud(points, 3, 2, DataType::float32, 2);
  EXPECT_NEAR(centre_of("x", cloud.view(), {})[0], 34, 1e-13);
  EXPECT_NEAR(centre_of("x", cloud.view(), {})[1], -94.0 / 3, 1e-13);
  std::vector<double> const weights{1, 3, 0};
  EXPECT_EQ(centre_of("x", cloud.view(), weights), (std::vector<double>{1.5, 4}));
}

TEST(CentreOf, starts_with_weightless_points) {
  std::vector<double> const points{7, 1, 3};
  std::vector<double> const weights{0, 0.5, 0.5};
  EXPECT_EQ(centre_of("x", MatrixView(points.data(), 3, 1), weights), std::vector<double>{2});
}

TEST(CentreOf, does_not_overflow) {
  std::vector<double> const points(4, 1.5e308);
  std::vector<double> const centre = centre_of("x", MatrixView(points.data(), 4, 1), {});
  EXPECT_EQ(centre, std::vector<double>{1.5e308});
}

// Any point amid the cloud will do as a centre; 1e-4 of its radius is more than enough.
TEST(CentreOf, is_amid_a_far_cloud) {
  std::vector<double> points(1001);
  for (std::size_t i = 0; i < points.size(); ++i) points[i] = 1e9 + 1e-3 * (static_cast<double>(i) - 500);
  EXPECT_NEAR(centre_of("x", MatrixView(points.data(), 1001, 1), {})[0], 1e9, 5e-5);
}

TEST(Names, are_stable) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 3}), "cuda:3");
  EXPECT_EQ(name(ErrorCode::invalid_argument), "invalid_argument");
  EXPECT_EQ(name(ErrorCode::unsupported), "unsupported");
  EXPECT_EQ(name(ErrorCode::out_of_memory), "out_of_memory");
  EXPECT_EQ(name(ErrorCode::device_failure), "device_failure");
  EXPECT_EQ(name(ErrorCode::input_output), "input_output");
  EXPECT_EQ(name(Schedule::overrelaxed), "overrelaxed");
  EXPECT_EQ(name(Schedule::alternating), "alternating");
  EXPECT_EQ(name(Schedule::symmetric), "symmetric");
  EXPECT_EQ(name(Precision::float32), "float32");
  EXPECT_EQ(name(Precision::tf32), "tf32");
  EXPECT_EQ(name(Precision::float64), "float64");
  EXPECT_EQ(name(Status::converged), "converged");
  EXPECT_EQ(name(Status::completed), "completed");
  EXPECT_EQ(name(Status::iteration_limit), "iteration_limit");
  EXPECT_EQ(name(Status::precision_limit), "precision_limit");
  EXPECT_EQ(name(Status::stopped), "stopped");
}

TEST(Devices, begin_with_the_cpu) {
  std::vector<DeviceInfo> const all = devices();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].device, Device{});
  for (DeviceInfo const& info : all) {
    EXPECT_FALSE(info.name.empty());
    EXPECT_FALSE(info.instruction_set.empty());
    EXPECT_GT(info.units, 0);
    EXPECT_GT(info.memory_bytes, 0);
  }
  EXPECT_EQ(cuda_unavailable_reason().empty(), all.size() > 1);
  EXPECT_EQ(Context::cpu().device(), Device{});
  EXPECT_EQ(version().find_first_not_of("0123456789."), std::string::npos);
}

TEST(Devices, that_are_not_there_are_unsupported) {
  for (int const index : {-1, 100}) {
    try {
      Context::cuda({.index = index});
      ADD_FAILURE() << "cuda:" << index << " should not exist";
    } catch (Error const& error) {
      EXPECT_TRUE(error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()), "");
    }
  }
  EXPECT_THROW(Context::cpu(-1), Error);
}

TEST(Views, describe_memory) {
  std::vector<float> const floats{1, 2, 3, 4, 5, 6};
  VectorView const vector(floats);
  EXPECT_EQ(vector.size(), 6);
  EXPECT_EQ(vector.stride(), 1);
  EXPECT_EQ(vector.type(), DataType::float32);
  EXPECT_TRUE(VectorView().empty());
  MatrixView const matrix(floats.data(), 2, 2, 3);
  EXPECT_EQ(matrix.row_stride(), 3);
  EXPECT_EQ(MatrixView(floats.data(), 3, 2).row_stride(), 2);
  EXPECT_EQ(matrix.as<float>()[matrix.row_stride() + 1], 5);
}

}  // namespace
}  // namespace monge::oracle
