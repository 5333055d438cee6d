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
/// A matrix of .npy that stays in its file, of which work reads what it needs: Array::mapped. None for a file whose
/// numbers are not those of this machine, or for text: read_array() reads these.
std::optional<Array> map_matrix(std::string const& field, std::filesystem::path const& path);
/// The same for whole numbers: int32, int64 and bool in .npy, digits in text.
IndexArray read_index_array(std::string const& field, std::filesystem::path const& path);

/// Writes .npy. Throws Error (input_output).
void write_array(std::filesystem::path const& path, Array const& array);
void write_array(std::filesystem::path const& path, IndexArray const& array);

/// Writes a text file. Throws Error (input_output).
void write_text(std::filesystem::path const& path, std::string const& text);

}  // namespace monge::cli
