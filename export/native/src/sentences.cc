#include "sentences.h"

#include <algorithm>

#include "segmentation.h"
#include "sentence_cuts.h"
#include "sentence_rules.h"
#include "utf8.h"

namespace keras_transformer {
namespace {

bool ends_line(char32_t character) {
  return (character >= '\n' && character <= '\r') || character == 0x85 || character == 0x2028 ||
         character == 0x2029;
}

// Where no space stands between sentences: CJK and the full-width forms.
bool is_wide(char32_t each) {
  return is_white(each) || (each >= 0x2E80 && each <= 0xA4CF) ||
         (each >= 0xF900 && each <= 0xFAFF) || (each >= 0xFE30 && each <= 0xFE4F) ||
         (each >= 0xFF00 && each <= 0xFF65) || (each >= 0x20000 && each <= 0x3FFFF);
}

bool need_space(const std::string& first, const std::string& second) {
  if (first.empty() || second.empty()) return false;
  size_t last = first.size() - 1;
  while (last && (first[last] & 0xC0) == 0x80) --last;  // to the first byte of the character
  return !is_wide(code_points(first.substr(last)).front()) &&
         !is_wide(code_points(second.substr(0, 4)).front());  // a character has at most 4 bytes
}

// Sentences and gaps that grow.
class Parts {
 public:
  explicit Parts(const Fits& fits) : fits_(fits) { split_.gaps.emplace_back(); }

  // A sentence with the white space around it.
  void add(std::u32string_view text) {
    size_t begin = 0, end = text.size();
    while (begin < end && is_white(text[begin])) ++begin;
    while (end > begin && is_white(text[end - 1])) --end;
    add_gap(text.substr(0, begin));
    const auto fits = [&](std::u32string_view part) { return fits_(utf8(part)); };
    cut(text.substr(begin, end - begin), fits, [&](std::u32string_view part, bool is_sentence) {
      if (!is_sentence) return add_gap(part);
      split_.sentences.push_back(utf8(part));
      split_.gaps.emplace_back();
    });
    add_gap(text.substr(end));
  }

  void add_gap(std::u32string_view text) { split_.gaps.back() += utf8(text); }

  SplitText take() { return std::move(split_); }

 private:
  const Fits& fits_;
  SplitText split_;
};

}  // namespace

SplitText split_text(std::string_view text, std::string_view language, const Fits& fits) {
  const SentenceRules rules(language);
  const std::u32string characters = code_points(text);
  std::u32string_view rest = characters;
  Parts parts(fits);
  while (!rest.empty()) {
    size_t stop = 0;
    while (stop < rest.size() && !ends_line(rest[stop])) ++stop;
    const auto line = rest.substr(0, stop);
    size_t begin = 0;
    for (const size_t place : rules.ends(line)) {
      parts.add(line.substr(begin, place - begin));
      begin = place;
    }
    parts.add(line.substr(begin));
    const size_t end = std::min(stop + 1, rest.size());
    parts.add_gap(rest.substr(stop, end - stop));
    rest.remove_prefix(end);
  }
  return parts.take();
}

std::string SplitText::with_translations(const std::vector<std::string>& translations) const {
  std::string text = gaps[0];
  for (size_t i = 0; i < translations.size(); ++i) {
    if (i && gaps[i].empty() && need_space(translations[i - 1], translations[i])) text += ' ';
    text += translations[i] + gaps[i + 1];
  }
  return text;
}

}  // namespace keras_transformer
