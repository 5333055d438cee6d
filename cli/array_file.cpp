#include "array_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "csv.hpp"

namespace monge::cli {
namespace {

std::ofstream open_to_write(std::filesystem::path const& path) {
  std::ofstream out(path, std::ios::binary);
  if (!out) {
    throw Error(ErrorCode::input_output, fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
  }
  return out;
}

void close(std::ofstream& out, std::filesystem::path const& path) {
  out.close();
  if (!out) {
    throw Error(ErrorCode::input_output, fmt::format("{}: writing failed: {}", path.string(), std::strerror(errno)));
  }
}

template <class Numbers>
void write_numbers(std::filesystem::path const& path, Numbers const& numbers) {
  std::ofstream out = open_to_write(path);
  write_npy(out, numbers);
  close(out, path);
}

std::string extension_of(std::filesystem::path const& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension;
}

/// Reads .npy by `read` and text by `parse`. Both get the name "field: path" for their messages.
template <class Read, class Parse>
auto read_numbers(std::string const& field, std::filesystem::path const& path, Read const& read, Parse const& parse) {
  std::string const name = fmt::format("{}: {}", field, path.string());
  std::string const extension = extension_of(path);
  bool const npy = extension == ".npy";
  if (!npy && extension != ".csv" && extension != ".tsv" && extension != ".txt") {
    throw Error(ErrorCode::input_output,
                fmt::format("{}: has the extension '{}'; must be .npy, .csv, .tsv or .txt", name, extension));
  }
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    throw Error(ErrorCode::input_output, fmt::format("{}: is a folder; must be a file", name));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::input_output, fmt::format("{}: cannot be opened: {}", name, std::strerror(errno)));
  if (npy) return read(in, name);
  try {
    std::string const text{std::istreambuf_iterator<char>(in), {}};
    if (in.bad()) throw Error(ErrorCode::input_output, fmt::format("{}: could not be read to its end", name));
    return parse(text, name);
  } catch (std::bad_alloc const&) {
    throw Error(ErrorCode::out_of_memory, fmt::format("{}: memory ran out while it was read", name));
  }
}

/// The whole numbers of a float64 table, which holds them exactly up to 2^53.
IndexArray whole_numbers(Array const& table, std::string const& name) {
  constexpr double kMost = 9007199254740992.0;
  IndexArray result{table.shape, {}};
  for (double const value : std::get<std::vector<double>>(table.values)) {
    if (value != std::floor(value) || std::abs(value) > kMost) {
      throw Error(ErrorCode::input_output,
                  fmt::format("{}: row {}, column {} is {}; must be a whole number", name,
                              static_cast<std::int64_t>(result.values.size()) / table.columns(),
                              static_cast<std::int64_t>(result.values.size()) % table.columns(), value));
    }
    result.values.push_back(static_cast<std::int64_t>(value));
  }
  return result;
}

}  // namespace

Array read_array(std::string const& field, std::filesystem::path const& path) {
  return read_numbers(field, path, read_npy, parse_csv);
}

std::optional<Array> map_matrix(std::string const& field, std::filesystem::path const& path) {
  if (extension_of(path) != ".npy") return std::nullopt;
  using Found = std::optional<NpyMatrix>;
  Found found = read_numbers(field, path, find_npy_matrix, [](auto const&...) { return Found(); });
  if (!found) return std::nullopt;
  std::size_t const bytes = static_cast<std::size_t>(found->begin + found->bytes);
  int const file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const memory = file < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  int const error = errno;
  if (file >= 0) ::close(file);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::input_output,
                fmt::format("{}: {}: cannot be mapped: {}", field, path.string(), std::strerror(error)));
  std::shared_ptr<void const> const whole(memory, [bytes](void const* of) { ::munmap(const_cast<void*>(of), bytes); });
  found->array.mapped = {whole, static_cast<std::byte const*>(memory) + found->begin};
  return std::move(found->array);
}

IndexArray read_index_array(std::string const& field, std::filesystem::path const& path) {
  return read_numbers(field, path, read_index_npy, [](std::string_view text, std::string const& name) {
    return whole_numbers(parse_csv(text, name), name);
  });
}

void write_array(std::filesystem::path const& path, Array const& array) {
  write_numbers(path, array);
}

void write_array(std::filesystem::path const& path, IndexArray const& array) {
  write_numbers(path, array);
}

void write_text(std::filesystem::path const& path, std::string const& text) {
  std::ofstream out = open_to_write(path);
  out << text;
  close(out, path);
}

}  // namespace monge::cli
