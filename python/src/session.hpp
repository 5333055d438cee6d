// Calls from Python run in a Session: without the interpreter's lock, and one at a time for each context.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <monge/context.hpp>
#include <mutex>
#include <utility>

namespace monge::python {

namespace nb = nanobind;

/// A Context that threads of Python share.
class Session {
 public:
  explicit Session(Context context) : context_(std::move(context)) {}

  Device device() const { return context_.device(); }

  /// Runs work(context) while other threads run Python. The interpreter's lock is released first and taken again last,
  /// so a thread that waits for the context never holds it.
  template <class Work>
  auto run(Work const& work) {
    nb::gil_scoped_release const released;
    std::lock_guard const lock(mutex_);
    return work(context_);
  }

 private:
  Context context_;
  std::recursive_mutex mutex_;  // A progress function may use, or drop, objects of the session that is solving.
};

/// An object that the library made on a session's context, with the caller's memory that it may read. It is used and
/// destroyed in Session::run().
template <class Made>
class OnSession {
 public:
  OnSession(std::shared_ptr<Session> session, std::shared_ptr<Made> made, std::shared_ptr<void const> memory)
      : session_(std::move(session)), memory_(std::move(memory)), made_(std::move(made)) {}
  OnSession(OnSession const&) = delete;
  OnSession(OnSession&&) noexcept = default;
  ~OnSession() {
    if (made_) session_->run([&](Context const&) { made_.reset(); });
  }

  std::shared_ptr<Session> const& session() const { return session_; }
  std::shared_ptr<void const> const& memory() const { return memory_; }
  std::shared_ptr<Made> const& made() const { return made_; }

  /// Runs work(made) on the session.
  template <class Work>
  auto run(Work const& work) const {
    return session_->run([&](Context const&) { return work(*made_); });
  }

 private:
  std::shared_ptr<Session> session_;
  std::shared_ptr<void const> memory_;
  std::shared_ptr<Made> made_;
};

void bind_session(nb::module_& module);

}  // namespace monge::python
