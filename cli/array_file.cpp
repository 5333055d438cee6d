#include "array_file.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <new>

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

}  // namespace

Array read_array(std::string const& field, std::filesystem::path const& path, Order order) {
  std::string const name = fmt::format("{}: {}", field, path.string());
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
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
  if (npy) return read_npy(in, name, order);
  try {
    std::string const text{std::istreambuf_iterator<char>(in), {}};
    if (in.bad()) throw Error(ErrorCode::input_output, fmt::format("{}: could not be read to its end", name));
    return parse_csv(text, name);
  } catch (std::bad_alloc const&) {
    throw Error(ErrorCode::out_of_memory, fmt::format("{}: memory ran out while it was read", name));
  }
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
