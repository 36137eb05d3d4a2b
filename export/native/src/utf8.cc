#include "utf8.h"

namespace keras_transformer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kWideSpace = "\xE3\x80\x80";    // U+3000
constexpr std::string_view kSpaces = " \t\n\r\v\f";

// How many bytes follow a first byte; -1 where no character begins with it.
int following(unsigned char first) {
  if (first < 0x80) return 0;
  if (first < 0xC2) return -1;
  if (first < 0xE0) return 1;
  if (first < 0xF0) return 2;
  return first < 0xF5 ? 3 : -1;
}

// The length of the longest part at the start of `text` that a character could begin with.
size_t part(std::string_view text, int more) {
  const auto first = static_cast<unsigned char>(text[0]);
  // The second byte of these is narrower: no other spelling of a short one, no surrogate, and
  // nothing above U+10FFFF.
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  size_t length = 1;
  while (static_cast<int>(length) <= more && length < text.size()) {
    const auto byte = static_cast<unsigned char>(text[length]);
    if (byte < low || byte > high) break;
    ++length, low = 0x80, high = 0xBF;
  }
  return length;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

std::string repaired(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const int more = following(static_cast<unsigned char>(text[0]));
    const size_t length = part(text, more);
    const bool is_whole = static_cast<int>(length) == more + 1;
    result += is_whole ? text.substr(0, length) : kReplacement;
    text.remove_prefix(length);
  }
  return result;
}

std::string_view stripped(std::string_view text) {
  const size_t start = text.find_first_not_of(kSpaces);
  if (start == text.npos) return {};
  return text.substr(start, text.find_last_not_of(kSpaces) + 1 - start);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while ((text = stripped(text)).size()) {
    parts.push_back(text.substr(0, text.find_first_of(kSpaces)));
    text.remove_prefix(parts.back().size());
  }
  return parts;
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    found.push_back(text.substr(0, following(static_cast<unsigned char>(text[0])) + 1));
    text.remove_prefix(found.back().size());
  }
  return found;
}

std::u32string code_points(std::string_view text) {
  std::u32string found;
  for (const std::string_view bytes : characters(text)) {
    const auto first = static_cast<unsigned char>(bytes[0]);
    // Of the first byte of n there are 7 - n bits, of the only one all.
    char32_t character = bytes.size() == 1 ? first : first & (0x7Fu >> bytes.size());
    for (const char byte : bytes.substr(1)) {
      character = character << 6 | (static_cast<unsigned char>(byte) & 0x3F);
    }
    found += character;
  }
  return found;
}

std::string utf8(std::u32string_view characters) {
  std::string text;
  for (const char32_t each : characters) {
    const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
    if (each < 0x80) {
      add(each);
      continue;
    }
    if (each < 0x800) {
      add(0xC0 | each >> 6);
    } else {
      if (each < 0x10000) {
        add(0xE0 | each >> 12);
      } else {
        add(0xF0 | each >> 18);
        add(0x80 | (each >> 12 & 0x3F));
      }
      add(0x80 | (each >> 6 & 0x3F));
    }
    add(0x80 | (each & 0x3F));
  }
  return text;
}

std::string_view settled(std::string_view text) {
  for (;;) {
    if (ends_with(text, kReplacement) || ends_with(text, kWideSpace)) {
      text.remove_suffix(3);
    } else if (!text.empty() && std::string_view(" \t\n\r").find(text.back()) != text.npos) {
      text.remove_suffix(1);
    } else {
      return text;
    }
  }
}

}  // namespace keras_transformer
