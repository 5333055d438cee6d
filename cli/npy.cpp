#include "npy.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <monge/error.hpp>

namespace monge::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kRealTypes =
    "float32 ('<f4'), float64 ('<f8'), whole numbers or bool, which become float64; logits of project also float16";
constexpr char kNativeOrder = std::endian::native == std::endian::little ? '<' : '>';

template <class... Args>
[[noreturn]] void fail(std::string const& name, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::input_output, fmt::format("{}: {}", name, fmt::format(format, std::forward<Args>(args)...)));
}

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// The header is a Python dictionary literal with exactly the keys descr, fortran_order and shape.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string const& name) : text_(text), name_(name) {}

  Header parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<std::int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      std::string const key = string("a key");
      expect(':');
      if (key == "descr" && !descr) {
        descr = descr_value();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fail(name_, "the .npy header has the key '{}'; must have descr, fortran_order and shape, once each",
             printable(key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) broken("nothing after the dictionary");
    if (!descr || !fortran_order || !shape) {
      fail(name_, "the .npy header lacks {}; must have descr, fortran_order and shape",
           !descr           ? "descr"
           : !fortran_order ? "fortran_order"
                            : "shape");
    }
    return {*descr, *fortran_order, *shape};
  }

 private:
  [[noreturn]] void broken(char const* wanted) const {
    fail(name_, "the .npy header is damaged at byte {} ('{}'); expected {}", at_, printable(text_.substr(at_)), wanted);
  }
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) != nullptr && text_[at_] != '\0') ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    char const wanted[] = {'\'', c, '\'', '\0'};
    if (!accept(c)) broken(wanted);
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  std::string string(char const* wanted) {
    skip_space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) broken(wanted);
    std::size_t const end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) broken("a closed string");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }
  std::string descr_value() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') fail(name_, "has a structured dtype; must be {}", kRealTypes);
    return string("a dtype");
  }
  bool boolean() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) broken("True or False");
    return false;
  }
  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> entries;
    expect('(');
    while (!accept(')')) {
      entries.push_back(integer());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return entries;
  }
  std::int64_t integer() {
    skip_space();
    std::size_t const begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      int const digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) {
        at_ = begin;
        broken("a length that fits in 63 bits");
      }
      value = 10 * value + digit;
    }
    if (at_ == begin) broken("a length >= 0");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return value;
  }

  std::string_view text_;
  std::string const& name_;
  std::size_t at_ = 0;
};

template <class T>
void swap_bytes(std::vector<T>& values) {
  for (T& value : values) {
    auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
    std::reverse(bytes.begin(), bytes.end());
    value = std::bit_cast<T>(bytes);
  }
}

template <class T>
std::vector<T> read_values(std::istream& in, std::string const& name, Header const& header, std::int64_t count) {
  std::vector<T> values;
  try {
    values.resize(static_cast<std::size_t>(count));
    auto const read = [&](std::vector<T>& into) {
      in.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size() * sizeof(T)));
      if (!in) fail(name, "could not be read to its end");
    };
    if (header.fortran_order && header.shape.size() > 1) {
      // The file holds lines along the first dimension. From one line to the next the second index runs fastest.
      std::vector<std::int64_t> const& shape = header.shape;
      std::int64_t const stride = count > 0 ? count / shape[0] : 0;
      std::vector<T> line(static_cast<std::size_t>(count > 0 ? shape[0] : 0));
      for (std::int64_t k = 0; k < stride; ++k) {
        std::int64_t at = k;
        if (shape.size() == 3) at = k % shape[1] * shape[2] + k / shape[1];
        read(line);
        for (std::size_t i = 0; i < line.size(); ++i)
          values[i * static_cast<std::size_t>(stride) + static_cast<std::size_t>(at)] = line[i];
      }
    } else {
      read(values);
    }
  } catch (std::bad_alloc const&) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("{}: memory ran out for its {} values of {} bytes", name, count, sizeof(T)));
  }
  if (header.descr[0] != '=' && header.descr[0] != kNativeOrder) swap_bytes(values);
  return values;
}

}  // namespace

namespace {

/// The part of a file before its values.
struct Preamble {
  Header header;
  std::int64_t length, header_end;  // Bytes of the file, and of this part.

  /// "f8" of '<f8'.
  std::string_view type() const {
    std::string_view const descr = header.descr;
    bool const has_order = descr.find_first_of("<>=") == 0, is_byte = descr.starts_with('|') && descr.ends_with('1');
    return descr.size() == 3 && (has_order || is_byte) ? descr.substr(1) : "";
  }
};

/// Leaves the stream at the first value.
Preamble read_preamble(std::istream& in, std::string const& name) {
  in.seekg(0, std::ios::end);
  std::int64_t const length = in.tellg();
  in.seekg(0);
  if (!in || length < 0) fail(name, "cannot be read; must be a regular file");

  std::array<char, 12> start{};
  in.read(start.data(), std::min<std::int64_t>(start.size(), length));
  std::string_view const magic(start.data(), kMagic.size());
  if (length < 10 || magic != kMagic) fail(name, "does not begin as a .npy file; must be one that NumPy wrote");
  int const major = static_cast<unsigned char>(start[6]), minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    fail(name, "is .npy version {}.{}; must be 1.0, 2.0 or 3.0", major, minor);
  }
  std::int64_t const header_begin = major == 1 ? 10 : 12;
  std::int64_t header_length = 0;
  for (std::int64_t i = header_begin - 1; i >= 8; --i) {
    header_length = 256 * header_length + static_cast<unsigned char>(start[static_cast<std::size_t>(i)]);
  }
  if (length < header_begin || header_length > length - header_begin) {
    fail(name, "is cut off inside its header: the file has {} bytes, the header ends at {}", length,
         header_begin + header_length);
  }
  std::string text(static_cast<std::size_t>(header_length), '\0');
  in.clear();
  in.seekg(header_begin);
  in.read(text.data(), header_length);
  if (!in) fail(name, "could not be read to its end");
  return {HeaderParser(text, name).parse(), length, header_begin + header_length};
}

/// The number of values, of `item` bytes each. Throws Error unless the file holds exactly the values of its shape.
std::int64_t count_values(Preamble const& preamble, std::string const& name, std::int64_t item) {
  Header const& header = preamble.header;
  if (header.shape.empty() || header.shape.size() > 3) {
    fail(name, "has {} dimensions; must have 1, 2 or 3", header.shape.size());
  }
  std::int64_t count = 1;
  bool const empty = std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end();
  for (std::int64_t const entries : header.shape) {
    if (!empty && count > std::numeric_limits<std::int64_t>::max() / item / entries) {
      fail(name, "has shape {} in its header; the file has {} bytes", shape_text(header.shape), preamble.length);
    }
    count = empty ? 0 : count * entries;
  }
  std::int64_t const available = preamble.length - preamble.header_end;
  if (available < count * item) {
    fail(name, "is truncated: its shape {} needs {} bytes of data, the file has {}", shape_text(header.shape),
         count * item, available);
  }
  if (available > count * item) {
    fail(name, "has {} bytes after its data; its shape {} needs {} bytes, the file has {}", available - count * item,
         shape_text(header.shape), count * item, available);
  }
  return count;
}

}  // namespace

std::optional<NpyMatrix> find_npy_matrix(std::istream& in, std::string const& name) {
  Preamble const preamble = read_preamble(in, name);
  Header const& header = preamble.header;
  std::string_view const type = preamble.type();
  std::int64_t const item = type == "f4" ? 4 : type == "f8" ? 8 : 0;
  bool const native = header.descr[0] == '=' || header.descr[0] == kNativeOrder;
  if (item == 0 || !native || header.shape.size() != 2 || preamble.header_end % item != 0) return std::nullopt;
  std::int64_t const count = count_values(preamble, name, item);
  if (count == 0) return std::nullopt;
  Array array{header.shape, {}, header.fortran_order};
  if (item == 4) array.values = std::vector<float>();
  return NpyMatrix{std::move(array), preamble.header_end, count * item};
}

namespace {

/// The values of a file of whole numbers or bool as numbers of type To; none for a file of another type.
template <class To>
std::optional<std::vector<To>> read_whole_numbers(std::istream& in, std::string const& name, Preamble const& preamble) {
  std::string_view const type = preamble.type();
  std::optional<std::vector<To>> result;
  auto const read_if = [&]<class From>(From, std::string_view of) {
    if (type != of) return;
    auto const values = read_values<From>(in, name, preamble.header, count_values(preamble, name, sizeof(From)));
    result.emplace(values.begin(), values.end());
  };
  read_if(std::uint8_t(), "b1");
  read_if(std::int8_t(), "i1");
  read_if(std::uint8_t(), "u1");
  read_if(std::int16_t(), "i2");
  read_if(std::uint16_t(), "u2");
  read_if(std::int32_t(), "i4");
  read_if(std::uint32_t(), "u4");
  read_if(std::int64_t(), "i8");
  read_if(std::uint64_t(), "u8");
  return result;
}

}  // namespace

Array read_npy(std::istream& in, std::string const& name) {
  Preamble const preamble = read_preamble(in, name);
  Header const& header = preamble.header;
  std::string_view const type = preamble.type();
  Array array{header.shape, {}};
  if (type == "f2") {
    array.values = read_values<Half>(in, name, header, count_values(preamble, name, 2));
  } else if (type == "f4") {
    array.values = read_values<float>(in, name, header, count_values(preamble, name, 4));
  } else if (type == "f8") {
    array.values = read_values<double>(in, name, header, count_values(preamble, name, 8));
  } else if (auto whole = read_whole_numbers<double>(in, name, preamble)) {
    array.values = std::move(*whole);
  } else {
    fail(name, "has dtype '{}'; must be {}", printable(header.descr), kRealTypes);
  }
  return array;
}

IndexArray read_index_npy(std::istream& in, std::string const& name) {
  Preamble const preamble = read_preamble(in, name);
  auto values = read_whole_numbers<std::int64_t>(in, name, preamble);
  if (!values)
    fail(name, "has dtype '{}'; must be whole numbers, such as int64 ('<i8'), or bool ('|b1')",
         printable(preamble.header.descr));
  return {preamble.header.shape, std::move(*values)};
}

namespace {

template <class T>
void write_values(std::ostream& out, std::vector<std::int64_t> const& extents, char kind,
                  std::vector<T> const& values) {
  std::string shape;
  for (std::int64_t const entries : extents) shape += fmt::format("{}, ", entries);
  shape.resize(shape.size() - (extents.size() == 1 ? 1 : 2));  // "(3,)" and "(3, 4)"
  std::string header = fmt::format("{{'descr': '{}{}{}', 'fortran_order': False, 'shape': ({}), }}", kNativeOrder, kind,
                                   sizeof(T), shape);
  std::size_t const start = kMagic.size() + 4;
  header.append(63 - (start + header.size()) % 64, ' ').push_back('\n');  // data begin at a multiple of 64
  char const version_and_length[] = {1, 0, static_cast<char>(header.size() % 256),
                                     static_cast<char>(header.size() / 256)};
  out << kMagic;
  out.write(version_and_length, sizeof(version_and_length));
  out << header;
  out.write(reinterpret_cast<char const*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

}  // namespace

void write_npy(std::ostream& out, Array const& array) {
  std::visit([&](auto const& values) { write_values(out, array.shape, 'f', values); }, array.values);
}

void write_npy(std::ostream& out, IndexArray const& array) {
  write_values(out, array.shape, 'i', array.values);
}

}  // namespace monge::cli
