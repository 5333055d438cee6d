// NumPy's .npy format, versions 1.0 to 3.0: float16, float32, float64 and whole numbers of either byte order, and bool;
// C or Fortran order, up to 3-D.
#pragma once
#include <istream>
#include <optional>
#include <ostream>
#include <string>

#include "array.hpp"

namespace monge::cli {

/// Reads the whole of a seekable stream. `name` opens every message. Throws Error (input_output); memory is reserved
/// only after the header has been checked against the length of the stream. Whole numbers, true and false become
/// float64.
Array read_npy(std::istream& in, std::string const& name);
/// A matrix without its values, which follow one another from the byte `begin` of the stream on, in either order.
struct NpyMatrix {
  Array array;
  std::int64_t begin = 0, bytes = 0;
};
/// None where the values cannot be used as they lie there.
std::optional<NpyMatrix> find_npy_matrix(std::istream& in, std::string const& name);
/// The same for whole numbers; true and false are 1 and 0.
IndexArray read_index_npy(std::istream& in, std::string const& name);

/// Writes version 1.0 in C order; the array is row-major.
void write_npy(std::ostream& out, Array const& array);
/// The same for int64.
void write_npy(std::ostream& out, IndexArray const& array);

}  // namespace monge::cli
