// Calls from Python run in a Session: without the interpreter's lock, and one at a time for each context.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>
#include <monge/context.hpp>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

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
    std::shared_ptr<Turns> const turns = present_turns();
    nb::gil_scoped_release const released;
    Turn const turn(*turns);
    return work(context_);
  }

  /// Destroys `made`, then `memory`. Python may drop an object at any time, within a callback of another session too,
  /// so this never waits for the context: the thread that uses it destroys them when it has ended its work.
  void destroy(std::shared_ptr<void> made, std::shared_ptr<void const> memory) {
    std::shared_ptr<Turns> const turns = present_turns();
    nb::gil_scoped_release const released;
    try {
      std::lock_guard const lock(turns->dropping);
      turns->dropped.reserve(turns->dropped.size() + 1);
      turns->dropped.push_back({std::move(memory), std::move(made)});
    } catch (std::bad_alloc const&) {
      Turn const turn(*turns);
      made.reset();
    }
    turns->destroy_dropped();
  }

 private:
  struct Dropped {
    std::shared_ptr<void const> memory;
    std::shared_ptr<void> made;
  };

  /// Who uses the context, and the objects that the next user destroys.
  struct Turns {
    std::recursive_mutex context;  // A progress function may use, or drop, objects of the session that is solving.
    std::mutex dropping;           // The lock of `dropped`.
    std::vector<Dropped> dropped;

    std::vector<Dropped> take_dropped() {
      std::lock_guard const lock(dropping);
      return std::exchange(dropped, {});
    }
    bool has_dropped() {
      std::lock_guard const lock(dropping);
      return !dropped.empty();
    }
    /// Whoever has the context looks again when it has given it back, so nothing stays.
    void destroy_dropped() {
      while (has_dropped() && context.try_lock()) {
        std::vector<Dropped> taken = take_dropped();
        for (Dropped& each : taken) each.made.reset();
        context.unlock();
        nb::gil_scoped_acquire const lock;  // Memory belongs to objects of Python.
        taken.clear();
      }
    }
  };
  struct Turn {
    explicit Turn(Turns& turns) : turns(turns) { turns.context.lock(); }
    Turn(Turn const&) = delete;
    ~Turn() {
      turns.context.unlock();
      turns.destroy_dropped();
    }
    Turns& turns;
  };

  /// The turns of this process. A forked child gets new ones, since a mutex that another thread held at the fork stays
  /// locked there. The caller holds the interpreter's lock.
  std::shared_ptr<Turns> present_turns();

  Context context_;
  std::shared_ptr<Turns> turns_;
  int forks_ = 0;  // The number of forks before turns_ was made.
};

/// An object that the library made on a session's context, with the caller's memory that it may read. It is used in
/// Session::run(), and destroyed by Session::destroy().
template <class Made>
class OnSession {
 public:
  OnSession(std::shared_ptr<Session> session, std::shared_ptr<Made> made, std::shared_ptr<void const> memory)
      : session_(std::move(session)), memory_(std::move(memory)), made_(std::move(made)) {}
  OnSession(OnSession const&) = delete;
  OnSession(OnSession&&) noexcept = default;
  ~OnSession() {
    if (made_) session_->destroy(std::move(made_), std::move(memory_));
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
