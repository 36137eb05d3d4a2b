#include "standard_input.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "failure.h"
#include "utf8.h"

using keras_transformer::fail;

namespace {

constexpr const char* kMark = "\xEF\xBB\xBF";

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// By the first line: its first bytes, or a NUL for each character of ASCII.
void check_encoding(const std::string& line) {
  bool has_high = false, has_low = false;  // a byte that is no NUL, of big-endian units
  size_t size = line.size();
  if (size && line.back() == '\n') --size;
  for (size_t i = 0; i < size; ++i) (i % 2 ? has_low : has_high) |= line[i] != 0;
  const bool is_big = has_low && !has_high, is_little = has_high && !has_low && size % 2 == 0;
  const char* found = nullptr;
  if (starts_with(line, "\xFF\xFE") || starts_with(line, "\xFE\xFF") || is_big || is_little) {
    found = "UTF-16";
  }
  if (starts_with(line, "\x1F\x8B")) found = "gzip";
  if (found) fail("text must be UTF-8. Received: standard input, which is ", found);
}

}  // namespace

StandardInput::~StandardInput() { std::free(buffer_); }

std::optional<std::string> StandardInput::raw_line() {
  const ssize_t size = getline(&buffer_, &size_, stdin);
  if (std::ferror(stdin)) {
    fail("a text file must be readable. Received: standard input: ", std::strerror(errno));
  }
  if (size < 0) return std::nullopt;
  std::string line(buffer_, static_cast<size_t>(size));
  if (++number_ > 1) return line;
  check_encoding(line);
  return starts_with(line, kMark) ? line.substr(3) : line;
}

std::optional<std::string> StandardInput::line() {
  auto found = raw_line();
  if (!found) return found;
  if (!found->empty() && found->back() == '\n') found->pop_back();
  if (!found->empty() && found->back() == '\r') found->pop_back();
  if (keras_transformer::repaired(*found) != *found) {
    fail("text must be UTF-8. Received: standard input, line ", number_, ": other bytes");
  }
  return found;
}

std::string StandardInput::text() {
  std::string all;
  while (const auto found = raw_line()) all += *found;
  if (keras_transformer::repaired(all) != all) {
    fail("text must be UTF-8. Received: standard input: other bytes");
  }
  return all;
}
