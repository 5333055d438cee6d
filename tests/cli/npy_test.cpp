#include "npy.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scratch.hpp"

namespace monge::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string file_of(std::string header, std::string_view data, int major = 1) {
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + std::string(data);
}

std::string dictionary(std::string_view descr, std::string_view order, std::string_view shape) {
  std::ostringstream text;
  text << "{'descr': '" << descr << "', 'fortran_order': " << order << ", 'shape': " << shape << ", }";
  return text.str();
}

template <class T>
std::string bytes_of(std::vector<T> values, bool swapped = false) {
  std::string bytes(reinterpret_cast<char const*>(values.data()), values.size() * sizeof(T));
  if (swapped) {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      std::reverse(bytes.begin() + i, bytes.begin() + i + sizeof(T));
    }
  }
  return bytes;
}

Array read(std::string const& bytes) {
  std::istringstream in(bytes);
  return read_npy(in, "x: x.npy");
}

std::string npy_error_for(std::string const& bytes) {
  std::string const message = message_of([&] { read(bytes); });
  EXPECT_THAT(message, StartsWith("x: x.npy: "));
  EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
  return message;
}

std::vector<double> doubles(Array const& array) {
  return std::get<std::vector<double>>(array.values);
}
std::vector<float> floats(Array const& array) {
  return std::get<std::vector<float>>(array.values);
}

TEST(Npy, WhatIsWrittenIsReadBack) {
  for (auto const& shape : {std::vector<std::int64_t>{6}, {6, 1}, {2, 3}, {1, 6}, {3, 1, 2}}) {
    Array array{shape, std::vector<double>{1, 2, 3, 4, 5, 6.5}};
    std::stringstream file;
    write_npy(file, array);
    EXPECT_EQ(file.str().size() % 64, 48u) << "the data begin at a multiple of 64";
    Array const again = read(file.str());
    EXPECT_EQ(again.shape, shape);
    EXPECT_EQ(again.values, array.values);
  }
  Array const single{{3}, std::vector<float>{1, 2, 3.5f}};
  std::stringstream file;
  write_npy(file, single);
  EXPECT_EQ(read(file.str()).values, single.values);
}

TEST(Npy, ReadsEveryVersion) {
  for (int const version : {1, 2, 3}) {
    Array const array = read(file_of(dictionary("<f4", "False", "(2, 2)"), bytes_of<float>({1, 2, 3, 4}), version));
    EXPECT_THAT(array.shape, ElementsAre(2, 2));
    EXPECT_THAT(floats(array), ElementsAre(1, 2, 3, 4));
  }
}

TEST(Npy, FortranOrderIsReadByColumns) {
  Array const array = read(file_of(dictionary("<f8", "True", "(2, 3)"), bytes_of<double>({1, 4, 2, 5, 3, 6})));
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_THAT(doubles(array), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(doubles(read(file_of(dictionary("<f8", "True", "(2,)"), bytes_of<double>({1, 2})))), ElementsAre(1, 2));
}

TEST(Npy, MatricesAreFoundInTheirFiles) {
  auto const find = [](std::string_view type, std::string_view order, std::string_view shape, std::string const& bytes,
                       std::size_t unit = 8) {
    std::string header = dictionary(type, order, shape);
    header.resize(header.size() + unit - (10 + header.size() + 1) % unit, ' ');  // 10 bytes before it, a newline after.
    std::istringstream in(file_of(header, bytes));
    return find_npy_matrix(in, "cost: C.npy");
  };
  std::string const six = bytes_of<double>({1, 4, 2, 5, 3, 6});
  for (char const* const order : {"True", "False"}) {
    std::optional<NpyMatrix> found = find("<f8", order, "(2, 3)", six);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->bytes, 48);
    EXPECT_EQ(found->begin % 8, 0);
    EXPECT_THAT(found->array.shape, ElementsAre(2, 3));
    EXPECT_EQ(found->array.type(), DataType::float64);
    double const values[6] = {};
    found->array.mapped = {std::shared_ptr<void const>(), values};
    CostMatrix const matrix = costs("cost", found->array);
    bool const by_columns = order == std::string_view("True");
    EXPECT_EQ(matrix.transposed, by_columns);
    EXPECT_EQ(matrix.cost.rows(), by_columns ? 3 : 2);
    EXPECT_EQ(matrix.cost.columns(), by_columns ? 2 : 3);
    EXPECT_EQ(matrix.cost.data(), values);
  }
  EXPECT_EQ(find("<f4", "False", "(1, 2)", bytes_of<float>({1, 2}))->array.type(), DataType::float32);
  EXPECT_FALSE(find(">f8", "False", "(2, 3)", six)) << "another byte order";
  EXPECT_FALSE(find("<f8", "False", "(6,)", six)) << "a vector";
  EXPECT_FALSE(find("<i8", "False", "(2, 3)", six));
  EXPECT_FALSE(find("<f8", "False", "(2, 3)", six, 7)) << "numbers at odd places";
  EXPECT_FALSE(find("<f8", "False", "(0, 3)", ""));
  EXPECT_THAT(message_of([&] { find("<f8", "False", "(2, 4)", six); }), HasSubstr("is truncated"));
}

TEST(Npy, WholeNumbersAreWrittenAsInt64) {
  std::ostringstream file;
  write_npy(file, IndexArray{{2, 2}, {0, -1, 1LL << 40, 7}});
  std::string const bytes = file.str();
  EXPECT_EQ(bytes.size(), 128u + 32u);
  EXPECT_THAT(bytes, HasSubstr("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }"));
  EXPECT_EQ(bytes.substr(128), bytes_of<std::int64_t>({0, -1, 1LL << 40, 7}));
}

TEST(Npy, WholeNumbersOfEitherWidthAndByteOrderAreRead) {
  auto const read_indices = [](std::string const& bytes) {
    std::istringstream in(bytes);
    return read_index_npy(in, "labels_x: lx.npy");
  };
  std::vector<std::int64_t> const values{0, -1, 1 << 30, 7};
  auto const wide = bytes_of<std::int64_t>({0, -1, 1 << 30, 7});
  EXPECT_EQ(read_indices(file_of(dictionary("<i8", "False", "(4,)"), wide)).values, values);
  IndexArray const narrow =
      read_indices(file_of(dictionary("<i4", "False", "(4, 1)"), bytes_of<std::int32_t>({0, -1, 1 << 30, 7})));
  EXPECT_EQ(narrow.values, values);
  EXPECT_THAT(narrow.shape, ElementsAre(4, 1));
  EXPECT_EQ(read_indices(file_of(dictionary(">i8", "False", "(4,)"), bytes_of<std::int64_t>({0, -1, 1 << 30, 7}, true)))
                .values,
            values);
  EXPECT_THAT(message_of([&] { read_indices(file_of(dictionary("<f8", "False", "(4,)"), wide)); }),
              StartsWith("labels_x: lx.npy: has dtype '<f8'; must be whole numbers, such as int64 ('<i8'), or bool"));
}

template <class T>
void expect_whole_numbers(std::string const& descr, std::vector<T> const& values, bool swapped = false) {
  std::string const bytes = file_of(dictionary(descr, "False", "(2,)"), bytes_of<T>(values, swapped));
  std::vector<double> const expected(values.begin(), values.end());
  EXPECT_EQ(std::get<std::vector<double>>(read(bytes).values), expected) << descr;
  std::istringstream in(bytes);
  std::vector<std::int64_t> const indices(values.begin(), values.end());
  EXPECT_EQ(read_index_npy(in, "labels_x: lx.npy").values, indices) << descr;
}

TEST(Npy, WholeNumbersOfEveryTypeAreNumbers) {
  expect_whole_numbers<std::uint8_t>("|b1", {1, 0});
  expect_whole_numbers<std::int8_t>("|i1", {-128, 127});
  expect_whole_numbers<std::uint8_t>("|u1", {255, 7});
  expect_whole_numbers<std::int16_t>("<i2", {-32768, 5});
  expect_whole_numbers<std::uint16_t>(">u2", {65535, 5}, true);
  expect_whole_numbers<std::int32_t>(">i4", {-5, 1 << 30}, true);
  expect_whole_numbers<std::uint32_t>("<u4", {4294967295, 5});
  expect_whole_numbers<std::int64_t>("<i8", {-5, std::int64_t{1} << 52});
  expect_whole_numbers<std::uint64_t>("<u8", {5, std::uint64_t{1} << 52});
}

TEST(Npy, ThreeDimensionsInEitherOrder) {
  std::vector<double> const rows{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  // Entry (i, j, k) of 2 x 3 x 2 is 6 i + 2 j + k + 1.
  std::vector<double> const fortran{1, 7, 3, 9, 5, 11, 2, 8, 4, 10, 6, 12};
  EXPECT_EQ(doubles(read(file_of(dictionary("<f8", "False", "(2, 3, 2)"), bytes_of(rows)))), rows);
  EXPECT_EQ(doubles(read(file_of(dictionary("<f8", "True", "(2, 3, 2)"), bytes_of(fortran)))), rows);
  EXPECT_THAT(read(file_of(dictionary("<f8", "True", "(2, 0, 2)"), "")).shape, ElementsAre(2, 0, 2));
}

TEST(Npy, Float16IsKeptAsItsBits) {
  // 1, -2, the smallest, the largest, infinity, NaN
  std::vector<std::uint16_t> const bits{0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00, 0x7e00};
  for (bool const swapped : {false, true}) {
    Array const array = read(file_of(dictionary(swapped ? ">f2" : "<f2", "False", "(6,)"), bytes_of(bits, swapped)));
    auto const& halves = std::get<std::vector<Half>>(array.values);
    EXPECT_EQ(to_double(halves[0]), 1);
    EXPECT_EQ(to_double(halves[1]), -2);
    EXPECT_EQ(to_double(halves[2]), 0x1p-24);
    EXPECT_EQ(to_double(halves[3]), 65504);
    EXPECT_EQ(to_double(halves[4]), INFINITY);
    EXPECT_TRUE(std::isnan(to_double(halves[5])));
  }
}

TEST(Npy, BigEndianIsSwapped) {
  EXPECT_THAT(floats(read(file_of(dictionary(">f4", "False", "(2,)"), bytes_of<float>({1, 2.5f}, true)))),
              ElementsAre(1, 2.5f));
  EXPECT_THAT(doubles(read(file_of(dictionary(">f8", "True", "(1, 2)"), bytes_of<double>({1, 2.5}, true)))),
              ElementsAre(1, 2.5));
}

TEST(Npy, HeadersMayBeSpelledDifferently) {
  std::string const header = "{ \"shape\":(2L , ) ,\t'fortran_order':False,'descr':'<f8' }   ";
  EXPECT_THAT(read(file_of(header, bytes_of<double>({1, 2}))).shape, ElementsAre(2));
}

TEST(Npy, EmptyArraysKeepTheirShape) {
  EXPECT_THAT(read(file_of(dictionary("<f8", "False", "(0, 3)"), "")).shape, ElementsAre(0, 3));
  EXPECT_THAT(read(file_of(dictionary("<f8", "True", "(9223372036854775807, 0)"), "")).columns(), 0);
}

TEST(Npy, OtherFilesAreRefused) {
  EXPECT_THAT(npy_error_for(""), HasSubstr("does not begin as a .npy file"));
  EXPECT_THAT(npy_error_for("1,2,3\n4,5,6\n"), HasSubstr("does not begin as a .npy file"));
  std::string bytes = file_of(dictionary("<f8", "False", "(0,)"), "");
  bytes[6] = 9;
  EXPECT_THAT(npy_error_for(bytes), HasSubstr("is .npy version 9.0; must be 1.0, 2.0 or 3.0"));
}

TEST(Npy, OtherTypesAreNamed) {
  for (std::string const type : {"<c16", "|O", "<f16", "f8", "|f8", "<M8", "|V1", ""}) {
    EXPECT_THAT(npy_error_for(file_of(dictionary(type, "False", "(1,)"), std::string(16, '\0'))),
                HasSubstr("has dtype '" + type + "'; must be float32 ('<f4'), float64 ('<f8'), whole numbers or bool"));
  }
  EXPECT_THAT(npy_error_for(file_of("{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (1,), }", "12345678")),
              HasSubstr("structured dtype; must be float32 ('<f4'), float64"));
}

TEST(Npy, OtherDimensionsAreRefused) {
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "()"), "12345678")),
              HasSubstr("has 0 dimensions; must have 1, 2 or 3"));
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(1, 1, 1, 1)"), "12345678")),
              HasSubstr("has 4 dimensions"));
}

TEST(Npy, LengthsMustAgree) {
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(3, 2)"), std::string(40, 'x'))),
              HasSubstr("is truncated: its shape 3 x 2 needs 48 bytes of data, the file has 40"));
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(3,)"), std::string(25, 'x'))),
              HasSubstr("has 1 bytes after its data"));
}

TEST(Npy, AbsurdShapesAreRefusedWithoutMemory) {
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(100000000000, 3)"), "12345678")),
              HasSubstr("is truncated"));
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(4294967296, 4294967296)"), "12345678")),
              HasSubstr("has shape 4294967296 x 4294967296"));
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(99999999999999999999,)"), "12345678")),
              HasSubstr("63 bits"));
  EXPECT_THAT(npy_error_for(file_of(dictionary("<f8", "False", "(-1,)"), "12345678")), HasSubstr("a length >= 0"));
}

TEST(Npy, HeadersAreCheckedStrictly) {
  std::string whole = file_of(dictionary("<f8", "False", "(1,)"), "12345678");
  EXPECT_THAT(npy_error_for(whole.substr(0, 30)), HasSubstr("cut off inside its header"));
  EXPECT_THAT(npy_error_for(whole.substr(0, 11)), HasSubstr("cut off inside its header"));
  EXPECT_THAT(npy_error_for(file_of("{'descr': '<f8', 'shape': (1,)}", "12345678")), HasSubstr("lacks fortran_order"));
  EXPECT_THAT(npy_error_for(file_of("{'descr': '<f8', 'descr': '<f8'}", "")), HasSubstr("has the key 'descr'"));
  EXPECT_THAT(npy_error_for(file_of("{'color': 'red'}", "")), HasSubstr("has the key 'color'"));
  EXPECT_THAT(npy_error_for(file_of("{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}", "")),
              HasSubstr("expected True or False"));
  EXPECT_THAT(npy_error_for(file_of("{'descr': '<f8", "")), HasSubstr("expected a closed string"));
  EXPECT_THAT(npy_error_for(file_of("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)} + x", "12345678")),
              HasSubstr("nothing after the dictionary"));
  EXPECT_THAT(npy_error_for(file_of("", "")), HasSubstr("expected '{'"));
}

TEST(Npy, ReadsOrRefusesEveryFileOfTheFuzzingCorpus) {
  for (auto const& entry : std::filesystem::directory_iterator(MONGE_CORPUS "/npy")) {
    std::ifstream in(entry.path(), std::ios::binary);
    try {
      read_npy(in, entry.path().string());
    } catch (Error const&) {
    }
  }
}

}  // namespace
}  // namespace monge::cli
