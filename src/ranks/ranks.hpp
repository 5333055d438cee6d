// Ranks: processes that make the same calls with the same arguments and share the passes of these calls.
//
// Ranks are in step: each message is preceded by a header of a fixed size, which all ranks compare. A rank that leaves
// a call by an exception sends a header that says so, in place of the one that the others wait for.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <monge/context.hpp>
#include <monge/error.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>

#include "core/numbers.hpp"
#include "core/out_of_memory.hpp"

namespace monge {

/// The names and hash values of the inputs of a call: one for a number; of an array its shape, its type and its value.
/// Inputs of equal names share their hash values, so a batch has as many values as one problem.
class Digests {
 public:
  struct Name {
    std::string_view field, part;
    bool operator==(Name const&) const = default;
  };

  void add(char const* field, std::uint64_t bits) { add({field, "value"}, bits); }
  void add(char const* field, double value);
  void add(char const* field, std::string_view text);
  void add(char const* field, VectorView view);
  void add(char const* field, MatrixView view);
  void add(char const* field, IndexView view);
  void add(Geometry const& geometry);
  template <class T>
  requires std::is_enum_v<T> || std::is_integral_v<T>
  void add(char const* field, T value) { add(field, static_cast<std::uint64_t>(value)); }

  /// Adds a field of options: an object of this class is a visitor for visit_*_options().
  template <class Constraint, class Member>
  void operator()(Field<Constraint> const& field, Member const& member) {
    add(field.name, member);
  }

  std::vector<Name> names;
  std::vector<std::uint64_t> values;

 private:
  void add(Name name, std::uint64_t bits);
  void add_array(char const* field, std::int64_t rows, std::int64_t columns, std::int64_t bytes, std::uint64_t value);
};

/// An array of which rank r has computed the items from edges[r] to edges[r + 1] - 1. An exchange copies these items to
/// the other ranks.
struct SharedItems {
  std::byte* data;
  std::size_t stride, bytes;  // Bytes from item to item, and of an item.
  std::span<std::int64_t const> edges;
};

template <class V>
SharedItems shared_items(V* data, std::int64_t stride, std::span<std::int64_t const> edges) {
  return {reinterpret_cast<std::byte*>(data), to_size(stride) * sizeof(V), sizeof(V), edges};
}
inline SharedItems shared_items(MutableVectorView view, std::span<std::int64_t const> edges) {
  std::size_t const bytes = to_size(size_of(view.type()));
  return {static_cast<std::byte*>(view.data()), to_size(view.stride()) * bytes, bytes, edges};
}

class Ranks {
 public:
  explicit Ranks(Communicator communicator);

  int rank() const { return communicator_.rank; }
  int size() const { return communicator_.size; }
  double limit() const { return communicator_.limit; }
  bool in_call() const { return !call_.empty(); }

  /// Runs the body of a public call on all ranks. Throws on every rank if one leaves its body by an exception, is in
  /// another call or has other inputs; the context stays usable. After an exception of the communicator it is not.
  template <class Body>
  auto run(char const* call, Digests const& inputs, Body const& body) {
    try {
      begin(call, inputs);
      if constexpr (std::is_void_v<decltype(body())>) {
        body();
        end();
      } else {
        auto result = body();
        end();
        return result;
      }
    } catch (...) {
      leave(std::current_exception());
      throw;
    }
  }
  void exchange(std::span<SharedItems const> items);
  /// Precedes messages that the ranks send by other means. Throws on all ranks if one has left the call.
  void meet() { step(Stage::items, 0); }
  /// Records that a message by other means has failed, which the caller throws: no further message is sent.
  void lose();
  /// Whether a message has failed.
  bool lost() const { return !broken_.empty(); }
  /// The answer of rank 0.
  bool agree(bool answer);

 private:
  enum class Stage : std::uint64_t { begin, items, answer, end };
  void begin(char const* call, Digests const& inputs);
  void end();
  void leave(std::exception_ptr const& error);
  void step(Stage stage, std::uint64_t size, Error const* failure = nullptr);
  void gather(void const* mine, void* all, std::span<std::size_t const> bytes);
  template <class T>
  std::vector<T> gathered(std::span<T const> mine);
  [[noreturn]] void fail(ErrorCode code, std::string const& message);

  Communicator communicator_;
  std::string call_;      // Empty between calls.
  bool settled_ = false;  // All ranks know of the exception that ends the call.
  std::string broken_;    // The end of a communicator that threw.
  std::vector<std::byte> sent_, received_;
};

/// Null unless the context is distributed.
Ranks* ranks_of(Context const& context);

/// Runs `body` of the public call of this name, in step with other ranks if there are any. `describe(digests)` adds the
/// inputs. A call within a call is a part of it. Names the call where memory runs out.
template <class Describe, class Body>
auto in_step(Context const& context, char const* call, Describe const& describe, Body const& body) try {
  Ranks* const ranks = ranks_of(context);
  if (ranks == nullptr || ranks->in_call()) return body();
  Digests digests;
  describe(digests);
  return ranks->run(call, digests, body);
} catch (std::bad_alloc const&) {
  throw_out_of_memory(call);
}

/// A callback that calls `answer` on every rank and returns the answer of rank 0. Either all ranks or no rank must have
/// a callback.
template <class... Args>
std::function<bool(Args...)> agreed(Context const& context, std::function<bool(Args...)> answer) {
  Ranks* const ranks = ranks_of(context);
  if (ranks == nullptr || !answer) return answer;
  return [ranks, answer = std::move(answer)](Args... args) { return ranks->agree(answer(args...)); };
}

}  // namespace monge
