// Arrays whose rows are spread over the ranks. gather_rows() makes the whole arrays that the calls of the library take.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <monge/context.hpp>
#include <monge/error.hpp>

namespace monge {

/// Rows of all ranks, in the order of the ranks, row-major. This rank gave the rows from `begin` to `end` - 1.
template <class T>
struct GatheredRows {
  std::vector<T> all;
  std::int64_t begin = 0, end = 0;
};

/// Gathers rows of `columns` numbers each. All ranks call it, each with its own rows; a rank may have none. Throws
/// Error (invalid_argument) on all ranks if ranks differ in columns or in the size of a number, or if the communicator
/// has no all_gather.
template <class T>
requires std::is_trivially_copyable_v<T> GatheredRows<T> gather_rows(Communicator const& communicator,
                                                                     std::span<T const> mine,
                                                                     std::int64_t columns = 1) {
  if (!communicator.all_gather)
    throw Error(ErrorCode::invalid_argument, "communicator: has no all_gather; must have one");
  struct Header {
    std::int64_t count, columns, size;
  };
  std::size_t const ranks = static_cast<std::size_t>(communicator.size);
  std::size_t const self = static_cast<std::size_t>(communicator.rank);
  Header const own{static_cast<std::int64_t>(mine.size()), columns, static_cast<std::int64_t>(sizeof(T))};
  std::vector<Header> headers(ranks);
  communicator.all_gather(&own, headers.data(), std::vector<std::size_t>(ranks, sizeof(Header)));
  std::vector<std::size_t> bytes;
  std::size_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    auto const refuse = [&](std::string const& what) {
      throw Error(ErrorCode::invalid_argument, "rows: rank " + std::to_string(r) + " has " + what);
    };
    Header const& header = headers[r];
    if (header.columns < 1 || header.columns != headers[0].columns || header.size != headers[0].size)
      refuse(std::to_string(header.columns) + " columns of " + std::to_string(header.size) +
             " bytes; must be as rank 0, " + std::to_string(headers[0].columns) + " of " +
             std::to_string(headers[0].size) + ", and at least one");
    if (header.count % header.columns != 0)
      refuse(std::to_string(header.count) + " numbers; must be a multiple of " + std::to_string(columns) +
             ", the columns");
    bytes.push_back(static_cast<std::size_t>(header.count) * sizeof(T));
    total += static_cast<std::size_t>(header.count);
  }
  GatheredRows<T> rows{std::vector<T>(total)};
  for (std::size_t r = 0; r < self; ++r) rows.begin += headers[r].count / columns;
  rows.end = rows.begin + own.count / columns;
  communicator.all_gather(mine.data(), rows.all.data(), bytes);
  return rows;
}

}  // namespace monge
