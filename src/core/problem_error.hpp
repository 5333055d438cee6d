// Errors that name one problem of many.
#pragma once
#include <cstddef>

#include <monge/error.hpp>

namespace monge {

/// The error of one problem of many, with its index. The message does not name it: alone, a problem has no number.
class ProblemError : public Error {
 public:
  ProblemError(std::size_t index, Error const& error) : Error(error), index_(index) {}
  std::size_t index() const { return index_; }

 private:
  std::size_t index_;
};

/// Calls work(). An Error from it is thrown on as a ProblemError with this index.
template <class Work>
void for_problem(std::size_t index, Work&& work) {
  try {
    work();
  } catch (Error const& error) {
    throw ProblemError(index, error);
  }
}

/// Calls work(i) for each i < count, as for_problem() does.
template <class Work>
void for_each_problem(std::size_t count, Work&& work) {
  for (std::size_t i = 0; i < count; ++i) for_problem(i, [&] { work(i); });
}

}  // namespace monge
