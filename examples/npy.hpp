// Arrays from and to NumPy's .npy files, for the examples: version 1.0, little endian, rows one after another.
#pragma once
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace npy {

template <class T>
inline constexpr char const* kType = std::is_same_v<T, float>    ? "<f4"
                                     : std::is_same_v<T, double> ? "<f8"
                                                                 : "<i8";

template <class T>
struct Array {
  std::vector<std::int64_t> shape;
  std::vector<T> values;
};

template <class T>
Array<T> read(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  char prefix[10] = {};
  file.read(prefix, sizeof(prefix));
  std::string header(static_cast<unsigned char>(prefix[8]) + 256u * static_cast<unsigned char>(prefix[9]), ' ');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  bool const has_type = header.find(kType<T>) != std::string::npos;
  if (!file || !has_type || header.find("False") == std::string::npos)
    throw std::runtime_error(path + ": must be an .npy file of " + kType<T> + " in C order");
  Array<T> result;
  std::size_t size = 1;
  std::string const shape = header.substr(header.find('(') + 1);
  for (std::size_t at = 0; at < shape.find(')');) {
    std::size_t digits = 0;
    result.shape.push_back(std::stoll(shape.substr(at), &digits));
    size *= static_cast<std::size_t>(result.shape.back());
    at = shape.find_first_of("0123456789)", at + digits);
  }
  result.values.resize(size);
  file.read(reinterpret_cast<char*>(result.values.data()), static_cast<std::streamsize>(size * sizeof(T)));
  if (!file) throw std::runtime_error(path + ": ends early");
  return result;
}

template <class T>
void write(std::string const& path, std::vector<std::int64_t> const& shape, std::vector<T> const& values) {
  std::string header = std::string("{'descr': '") + kType<T> + "', 'fortran_order': False, 'shape': (";
  for (std::int64_t const size : shape) header += std::to_string(size) + ", ";
  header += ")}";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.put(static_cast<char>(header.size() % 256)).put(static_cast<char>(header.size() / 256));
  file << header;
  file.write(reinterpret_cast<char const*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!file) throw std::runtime_error(path + ": could not be written");
}

}  // namespace npy
