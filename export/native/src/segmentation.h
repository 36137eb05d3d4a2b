// Characters and where sentences and grapheme clusters end, as ICU sees it; without ICU all but
// `is_white` fail.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keras_transformer {

// The property White_Space of Unicode.
bool is_white(char32_t character);

// General categories.
bool is_lower_case(char32_t character);   // Ll
bool is_capital(char32_t character);      // Lu
bool is_digit(char32_t character);        // Nd
bool is_of_a_word(char32_t character);    // L, M, N
bool is_opening(char32_t character);      // Ps, Pi
char32_t to_capital(char32_t character);

// Places behind each sentence by Unicode Standard Annex 29, white space behind it included; the
// last is the end. `locale` is a language code of ICU's, or "root".
std::vector<size_t> sentence_ends(std::u32string_view line, const std::string& locale);

// Places behind each of what a reader sees as characters.
std::vector<size_t> cluster_ends(std::u32string_view text);

}  // namespace keras_transformer
