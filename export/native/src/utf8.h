// Texts in UTF-8, as Python reads them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keras_transformer {

// The text with U+FFFD for each maximal part that is no UTF-8: Python's `decode("utf-8",
// "replace")`.
std::string repaired(std::string_view text);

// Without what `bytes.strip` takes off both ends.
std::string_view stripped(std::string_view text);

// The parts between white space, as `bytes.split` gives them.
std::vector<std::string_view> split(std::string_view text);

// The characters of valid UTF-8, one by one.
std::vector<std::string_view> characters(std::string_view text);

// The same as numbers, and back.
std::u32string code_points(std::string_view text);
std::string utf8(std::u32string_view characters);

// Without what later tokens might change at the end: U+FFFD, which may be the first bytes of a
// character, and white space.
std::string_view settled(std::string_view text);

}  // namespace keras_transformer
