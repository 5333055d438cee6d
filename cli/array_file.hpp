// Arrays in files; the extension tells the format.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "array.hpp"
#include "npy.hpp"

namespace monge::cli {

/// Reads .npy, or text (.csv, .tsv, .txt). Messages name `field` ("x") and the file. Throws Error.
Array read_array(std::string const& field, std::filesystem::path const& path);
/// Maps the matrix of an .npy file into memory (Array::mapped): its pages are read when they are used. Returns nothing
/// for text, and for numbers whose type or byte order needs conversion; read_array() reads such files.
std::optional<Array> map_matrix(std::string const& field, std::filesystem::path const& path);
/// The same for whole numbers: int32, int64 and bool in .npy, digits in text.
IndexArray read_index_array(std::string const& field, std::filesystem::path const& path);

/// Writes .npy. Throws Error (input_output).
void write_array(std::filesystem::path const& path, Array const& array);
void write_array(std::filesystem::path const& path, IndexArray const& array);

/// Writes a text file. Throws Error (input_output).
void write_text(std::filesystem::path const& path, std::string const& text);

}  // namespace monge::cli
