#include "sentence_rules.h"

#include <algorithm>

#include "abbreviations.h"
#include "failure.h"
#include "record.h"
#include "segmentation.h"
#include "utf8.h"

namespace keras_transformer {
namespace {

constexpr size_t kLongestWord = 40;  // characters: beyond any of abbreviations.json

bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }
bool is_ascii_digit(char32_t character) { return character >= '0' && character <= '9'; }

// Two or three letters, then parts of one to eight letters or digits behind - or _.
bool is_tag(std::string_view text) {
  size_t size = 0;  // of the part
  bool is_first = true;
  for (const char byte : text) {
    if (byte == '-' || byte == '_') {
      if (!size || (is_first && size < 2)) return false;
      is_first = false, size = 0;
    } else if (is_letter(byte) || (!is_first && is_ascii_digit(static_cast<char32_t>(byte)))) {
      if (++size > (is_first ? 3u : 8u)) return false;
    } else {
      return false;
    }
  }
  return size >= (is_first ? 2u : 1u);
}

std::string code_of(std::string_view language) {
  std::string code(language.substr(0, language.find_first_of("-_")));
  for (char& byte : code) byte = byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
  return code;
}

// Abbreviations, and each with a capital in the place of its first letter.
std::vector<std::u32string> words_of(const Json& list) {
  std::vector<std::u32string> words;
  for (const Json& each : list) {
    words.push_back(code_points(each.get<std::string>()));
    words.push_back(words.back());
    words.back()[0] = to_capital(words.back()[0]);
  }
  return words;
}

size_t after_white(std::u32string_view line, size_t place) {
  while (place < line.size() && is_white(line[place])) ++place;
  return place;
}

// Whether a word may begin behind a text.
bool is_apart(std::u32string_view before) { return before.empty() || !is_of_a_word(before.back()); }

bool ends_with_any(std::u32string_view text, const std::vector<std::u32string>& words) {
  for (const auto& word : words) {
    if (text.size() < word.size() || text.substr(text.size() - word.size()) != word) continue;
    if (is_apart(text.substr(0, text.size() - word.size()))) return true;
  }
  return false;
}

bool is_list_number(std::u32string_view text) {
  return !text.empty() && text.size() <= 3 && std::all_of(text.begin(), text.end(), is_ascii_digit);
}

// One or two digits, or one to five of I, V and X.
bool ends_in_ordinal(std::u32string_view text) {
  const auto is_roman = [](char32_t each) { return each == 'I' || each == 'V' || each == 'X'; };
  const auto count = [&](auto is_in) {
    size_t size = 0;
    while (size < text.size() && is_in(text[text.size() - 1 - size])) ++size;
    return size;
  };
  const size_t digits = count(is_ascii_digit), numerals = count(is_roman);
  const size_t size = digits + numerals;  // one of the two is none
  if (!size || digits > 2 || numerals > 5) return false;
  const auto before = text.substr(0, text.size() - size);
  return is_apart(before) && (before.empty() || before.back() != ',');
}

}  // namespace

SentenceRules::SentenceRules(std::string_view language) {
  if (!language.empty() && !is_tag(language)) {
    fail("`language` must be a BCP 47 tag such as 'de' or 'pt-BR', or ''. Received: ",
         repaired(language).substr(0, 100));
  }
  const Json data = Json::parse(kAbbreviations);
  std::string code = code_of(language);
  code = data.at("aliases").value(code, code);
  locale_ = code.empty() ? "root" : code;
  for (const Json& each : data.at("ordinals")) has_ordinals_ |= each == code;
  const auto found = data.at("abbreviations").find(code);
  if (found == data.at("abbreviations").end()) return;
  always_ = words_of(found->at("always"));
  before_numbers_ = words_of(found->at("before_numbers"));
}

std::vector<size_t> SentenceRules::ends(std::u32string_view line) const {
  std::vector<size_t> found, pieces = sentence_ends(line, locale_);
  if (!pieces.empty()) pieces.pop_back();
  size_t begin = after_white(line, 0);
  for (size_t place : pieces) {
    // ICU before version 74 lets them begin a sentence.
    if (line[place] == ';' || line[place] == 0x37E) continue;
    while (place > begin && is_opening(line[place - 1])) --place;
    if (place <= begin || are_joined(line, begin, place)) continue;
    found.push_back(place);
    begin = after_white(line, place);
  }
  return found;
}

// Whether what begins at `begin`, with no white space, goes on behind `place`.
bool SentenceRules::are_joined(std::u32string_view line, size_t begin, size_t place) const {
  size_t end = place;
  while (is_white(line[end - 1])) --end;
  const size_t follows = after_white(line, place);
  if (follows == line.size()) return true;  // white space goes with what there is
  const char32_t last = line[end - 1], first = line[follows];
  if (is_lower_case(first)) return true;
  if (end == follows && last < 0x80 && first < 0x80) return true;
  return last == '.' && ends_no_sentence(line, begin, end - 1, first);
}

// Whether the word before the full stop at `stop` is an initial, a number or known.
bool SentenceRules::ends_no_sentence(std::u32string_view line, size_t begin, size_t stop,
                                     char32_t follows) const {
  if (is_list_number(line.substr(begin, stop - begin))) return true;
  const size_t start = std::max(begin, stop - std::min(stop, kLongestWord));
  const auto word = line.substr(start, stop - start);
  if (!word.empty() && is_capital(word.back()) && is_apart(word.substr(0, word.size() - 1))) {
    return true;
  }
  if (has_ordinals_ && ends_in_ordinal(word)) return true;
  const auto full = line.substr(start, stop + 1 - start);
  return ends_with_any(full, always_) ||
         (is_digit(follows) && ends_with_any(full, before_numbers_));
}

}  // namespace keras_transformer
