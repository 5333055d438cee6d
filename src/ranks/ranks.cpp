#include "ranks/ranks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>

#include "core/numbers.hpp"
#include "core/require.hpp"

namespace monge {
namespace {

/// Exchanges of more bytes go in several rounds.
constexpr std::size_t kRoundBytes = std::size_t{1} << 26;

struct Header {
  std::uint64_t call, stage, size, failure;  // failure: 1 + ErrorCode, or 0.
  bool operator==(Header const&) const = default;
};
using Text = std::array<char, 512>;

/// mixed(p, q) is mixed(q, p), so the hash of a sequence begins with mixed(1, first word).
std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

std::uint64_t hash_of(std::span<std::byte const> bytes, std::uint64_t seed = 1) {
  // Independent lanes hide the latency of multiplications.
  constexpr std::size_t kLanes = 8;
  std::uint64_t lanes[kLanes] = {seed, 2, 3, 4, 5, 6, 7, 8};
  std::size_t at = 0;
  for (; at + sizeof(lanes) <= bytes.size(); at += sizeof(lanes)) {
    std::uint64_t words[kLanes];
    std::memcpy(words, bytes.data() + at, sizeof(words));
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] = mixed(lanes[k], words[k]);
  }
  std::uint64_t rest[kLanes] = {};
  if (at < bytes.size()) std::memcpy(rest, bytes.data() + at, bytes.size() - at);
  std::uint64_t hash = bytes.size();
  for (std::size_t k = 0; k < kLanes; ++k) hash = mixed(hash, mixed(lanes[k], rest[k]));
  return hash;
}

/// A hash of the numbers in host memory, without their shape. It is 1 for device memory, and for views with errors,
/// which the call itself reports.
std::uint64_t hash_of(void const* data, Device device, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                      std::int64_t bytes) {
  std::uint64_t hash = 1;
  if (data == nullptr || device.type != DeviceType::cpu || (rows > 1 && stride < columns)) return hash;
  for (std::int64_t i = 0; i < rows; ++i) {
    hash = hash_of({static_cast<std::byte const*>(data) + i * stride * bytes, to_size(columns * bytes)}, hash);
  }
  return hash;
}

std::uint64_t hash_of(MatrixView view) {
  bool const dense = view.row_stride() == view.columns();
  return hash_of(view.data(), view.device(), dense ? 1 : view.rows(), view.columns() * (dense ? view.rows() : 1),
                 view.row_stride(), size_of(view.type()));
}

/// The hash of a cost matrix. Of a matrix above 16 MiB only pieces spread over it are hashed: it may be mapped from a
/// file, and a rank should read little more than the rows of its share.
std::uint64_t hash_of_costs(MatrixView view) {
  constexpr std::int64_t kWhole = 1 << 24, kPiece = 4096, kPieces = 1024;  // Bytes, bytes, number.
  std::int64_t const size = size_of(view.type()), bytes = view.columns() * size, rows = view.rows();
  if (rows * bytes <= kWhole) return hash_of(view);
  std::uint64_t hash = 1;
  if (view.data() == nullptr || view.device().type != DeviceType::cpu || view.row_stride() < view.columns())
    return hash;
  std::int64_t const piece = std::min(kPiece, bytes);
  for (std::int64_t k = 0; k < kPieces; ++k) {
    std::int64_t const row = k * (rows - 1) / (kPieces - 1), place = k * 7919 * kPiece % (bytes - piece + 1);
    hash = hash_of(
        {static_cast<std::byte const*>(view.data()) + row * view.row_stride() * size + place, to_size(piece)}, hash);
  }
  return hash;
}

}  // namespace

void Digests::add(Name name, std::uint64_t bits) {
  for (std::size_t k = 0; k < names.size(); ++k) {
    if (names[k] != name) continue;
    values[k] = mixed(values[k], bits);
    return;
  }
  names.push_back(name);
  values.push_back(mixed(1, bits));
}

void Digests::add_array(char const* field, std::int64_t rows, std::int64_t columns, std::int64_t bytes,
                        std::uint64_t value) {
  add({field, "shape"}, mixed(mixed(1, static_cast<std::uint64_t>(rows)), static_cast<std::uint64_t>(columns)));
  add({field, "type"}, static_cast<std::uint64_t>(bytes));
  add({field, "value"}, value);
}

void Digests::add(char const* field, double value) {
  add(field, std::bit_cast<std::uint64_t>(value));
}

void Digests::add(char const* field, std::string_view text) {
  add(field, hash_of(std::as_bytes(std::span(text))));
}

void Digests::add(char const* field, VectorView view) {
  bool const dense = view.stride() == 1;
  std::int64_t const n = view.size(), bytes = size_of(view.type());
  add_array(field, n, 1, bytes,
            hash_of(view.data(), view.device(), dense ? 1 : n, dense ? n : 1, view.stride(), bytes));
}

void Digests::add(char const* field, MatrixView view) {
  add_array(field, view.rows(), view.columns(), size_of(view.type()), hash_of(view));
}

void Digests::add(char const* field, IndexView view) {
  constexpr std::int64_t kBytes = sizeof(std::int64_t);
  add_array(field, view.size, 1, kBytes, hash_of(view.data, view.device, view.size, 1, view.stride, kBytes));
}

void Digests::add(Geometry const& geometry) {
  if (auto const* const clouds = std::get_if<PointCloud>(&geometry)) {
    add("x", clouds->x);
    add("y", clouds->y);
    add("scale", clouds->scale);
    add("cost_function", clouds->cost_function);
    add("p", clouds->p);
    add("labels", clouds->labels.x);
    add("labels", clouds->labels.y);
    add("label_cost", clouds->labels.cost);
    add("label_weight", clouds->labels.weight);
  } else {
    CostMatrix const& matrix = std::get<CostMatrix>(geometry);
    add_array("cost", matrix.cost.rows(), matrix.cost.columns(), size_of(matrix.cost.type()),
              hash_of_costs(matrix.cost));
    add("transposed", matrix.transposed);
  }
}

Ranks::Ranks(Communicator communicator) : communicator_(std::move(communicator)) {
  require(size() >= 1, "communicator: has size {}; must be >= 1", size());
  require(rank() >= 0 && rank() < size(), "communicator: has rank {}; must be in [0, {})", rank(), size());
  require(static_cast<bool>(communicator_.all_gather), "communicator: has no all_gather; must have one");
  require(communicator_.limit > 0 && communicator_.limit <= 1e6,
          "communicator: has limit {}; must be > 0 and <= 1e6 seconds", communicator_.limit);
}

void Ranks::gather(void const* mine, void* all, std::span<std::size_t const> bytes) {
  try {
    communicator_.all_gather(mine, all, bytes);
  } catch (...) {
    lose();
    throw;
  }
}

void Ranks::lose() {
  broken_ = call_;
  settled_ = true;
}

template <class T>
std::vector<T> Ranks::gathered(std::span<T const> mine) {
  std::vector<T> all(mine.size() * to_size(size()));
  gather(mine.data(), all.data(), std::vector<std::size_t>(to_size(size()), mine.size_bytes()));
  return all;
}

/// Throws an error that all ranks find at the same time.
void Ranks::fail(ErrorCode code, std::string const& message) {
  settled_ = true;
  throw Error(code, message);
}

void Ranks::step(Stage stage, std::uint64_t size, Error const* failure) {
  static constexpr char const* kStages[] = {"begin", "pass", "callback", "end"};
  Header const mine{hash_of(std::as_bytes(std::span(call_))), static_cast<std::uint64_t>(stage), size,
                    failure == nullptr ? 0 : 1 + static_cast<std::uint64_t>(failure->code())};
  std::vector<Header> const headers = gathered(std::span(&mine, 1));
  if (std::ranges::all_of(headers, [&](Header const& header) { return header == headers[0]; })) return;
  Text text{};
  std::string const shown = failure == nullptr ? fmt::format("{} ({})", call_, kStages[static_cast<int>(stage)])
                                               : std::string(failure->what());
  shown.copy(text.data(), text.size() - 1);
  std::vector<Text> const texts = gathered(std::span<Text const>(&text, 1));
  for (std::size_t r = 0; r < headers.size(); ++r) {
    if (headers[r].failure > 0)
      fail(static_cast<ErrorCode>(headers[r].failure - 1), fmt::format("rank {}: {}", r, texts[r].data()));
  }
  std::size_t other = 1;
  while (headers[other] == headers[0]) ++other;
  fail(ErrorCode::invalid_argument,
       fmt::format("ranks: rank 0 is in {} and rank {} in {}; all ranks must make the same calls", texts[0].data(),
                   other, texts[other].data()));
}

void Ranks::begin(char const* call, Digests const& inputs) {
  call_ = call;
  settled_ = false;
  if (!broken_.empty())
    fail(ErrorCode::device_failure, "ranks: a message of an earlier call, " + broken_ + ", failed; make a new context");
  step(Stage::begin, inputs.values.size());
  std::vector<std::uint64_t> const all = gathered(std::span(inputs.values));
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::size_t const count = inputs.values.size();
    auto const& [field, part] = inputs.names[k % count];
    if (all[k] != all[k % count])
      fail(ErrorCode::invalid_argument,
           fmt::format("{}: rank {} has another {} than rank 0; must be equal on all ranks", field, k / count, part));
  }
}

void Ranks::end() {
  step(Stage::end, 0);
  call_.clear();
}

void Ranks::leave(std::exception_ptr const& exception) {
  auto const announce = [&](Error const& error) {
    try {
      if (!settled_) step(Stage::end, 0, &error);
    } catch (...) {  // The exception of this rank goes on its way.
    }
  };
  try {
    std::rethrow_exception(exception);
  } catch (Error const& error) {
    announce(error);
  } catch (std::bad_alloc const&) {
    announce({ErrorCode::out_of_memory, call_ + ": the host has too little memory"});
  } catch (std::exception const& error) {
    announce({ErrorCode::invalid_argument, error.what()});
  } catch (...) {
    announce({ErrorCode::invalid_argument, "an exception ended the call"});
  }
  call_.clear();
}

bool Ranks::agree(bool answer) {
  step(Stage::answer, 0);
  char const mine = answer ? 1 : 0;
  return gathered(std::span(&mine, 1))[0] != 0;
}

void Ranks::exchange(std::span<SharedItems const> items) {
  std::size_t const ranks = to_size(size()), self = to_size(rank());
  std::size_t total = 0;
  for (SharedItems const& shared : items) total += shared.bytes * to_size(shared.edges[ranks] - shared.edges[0]);
  std::int64_t const rounds = static_cast<std::int64_t>(total / kRoundBytes + 1);
  // Calls visit(shared, begin, end) for the items that rank r sends in a round.
  auto const for_each_range = [&](std::size_t r, std::int64_t round, auto const& visit) {
    for (SharedItems const& shared : items) {
      std::int64_t const first = shared.edges[r], count = shared.edges[r + 1] - first;
      visit(shared, first + count * round / rounds, first + count * (round + 1) / rounds);
    }
  };
  std::vector<std::size_t> bytes(ranks);
  auto const find_bytes = [&](std::int64_t round) {
    for (std::size_t r = 0; r < ranks; ++r) {
      bytes[r] = 0;
      for_each_range(r, round, [&](SharedItems const& shared, std::int64_t begin, std::int64_t end) {
        bytes[r] += shared.bytes * to_size(end - begin);
      });
    }
  };
  // A rank that has too little memory says so in place of the header.
  for (std::int64_t round = 0; round < rounds; ++round) {
    find_bytes(round);
    sent_.resize(std::max(sent_.size(), bytes[self]));
    received_.resize(std::max(received_.size(), std::reduce(bytes.begin(), bytes.end())));
  }
  step(Stage::items, total);
  for (std::int64_t round = 0; round < rounds; ++round) {
    // Calls visit(memory of the item, its bytes) for those that rank r sends.
    auto const for_each_item = [&](std::size_t r, auto const& visit) {
      for_each_range(r, round, [&](SharedItems const& shared, std::int64_t begin, std::int64_t end) {
        bool const dense = shared.stride == shared.bytes;
        std::int64_t const step = dense ? std::max<std::int64_t>(end - begin, 1) : 1;
        for (std::int64_t i = begin; i < end; i += step)
          visit(shared.data + to_size(i) * shared.stride, shared.bytes * to_size(step));
      });
    };
    find_bytes(round);
    std::byte* to = sent_.data();
    for_each_item(self, [&](std::byte const* item, std::size_t count) { to = std::copy_n(item, count, to); });
    gather(sent_.data(), received_.data(), bytes);
    std::byte const* from = received_.data();
    for (std::size_t r = 0; r < ranks; ++r) {
      for_each_item(r, [&](std::byte* item, std::size_t count) {
        if (r != self) std::copy_n(from, count, item);
        from += count;
      });
    }
  }
}

}  // namespace monge
