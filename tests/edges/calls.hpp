// Every public function as a call that returns its numbers, for tests that vary what is around a call: memory, ranks.
#pragma once
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <monge/monge.hpp>

namespace monge::oracle {

struct PublicCall {
  std::string name;
  std::function<std::vector<double>(Context const&)> numbers;
  bool shares_passes = true;  // With other ranks. Without, each rank has the bits of its own threads.
};
inline std::ostream& operator<<(std::ostream& out, PublicCall const& call) {
  return out << call.name;
}

/// Solves end after few passes. Their pairs keep three threads busy.
std::vector<PublicCall> public_calls();

/// The methods of a plan, in a few groups. public_calls() has each with a new plan.
struct PlanCall {
  std::string name;
  std::function<std::vector<double>(Plan const&)> numbers;
};
std::vector<PlanCall> plan_calls();
Plan plan_for_calls(Context const& context);

}  // namespace monge::oracle
