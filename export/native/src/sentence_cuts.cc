#include "sentence_cuts.h"

#include <vector>

#include "segmentation.h"

namespace keras_transformer {
namespace {

constexpr std::u32string_view kMarks = U";:,.!?\u2013\u2014-\u2026\u060C\u061B";
constexpr std::u32string_view kWideMarks = U"\u3001\uFF0C\uFF1B\uFF1A\u3002\uFF01\uFF1F";
constexpr std::u32string_view kClosers = U"\u300D\u300F\uFF09\u3011\u300B\u3009\u201D\u2019";
constexpr std::u32string_view kWesternClosers = U"\"')]\u00BB";
constexpr char32_t kEllipsis = U'\u2026';

bool is_in(std::u32string_view set, char32_t character) { return set.find(character) != set.npos; }

// The place nearest to the middle, the first of two.
class Nearest {
 public:
  explicit Nearest(size_t size) : size_(size) {}

  void offer(size_t place) {
    const size_t distance = 2 * place > size_ ? 2 * place - size_ : size_ - 2 * place;
    if (!place_ || distance < distance_) place_ = place, distance_ = distance;
  }
  size_t place() const { return place_; }  // 0 where there is none

 private:
  size_t size_, place_ = 0, distance_ = 0;
};

// The character before a place, or the one before that where it closes a quotation.
char32_t mark_before(std::u32string_view text, size_t place, bool is_western) {
  const char32_t last = text[place - 1];
  const bool closes = is_in(kClosers, last) || (is_western && is_in(kWesternClosers, last));
  return closes && place > 1 ? text[place - 2] : last;
}

bool is_behind_mark(std::u32string_view text, size_t place) {
  const char32_t after = text[place];
  if (is_white(after) && is_in(kMarks, mark_before(text, place, true))) return true;
  const bool is_first = !is_in(kWideMarks, after) && !is_in(kClosers, after) && after != kEllipsis;
  return is_first && is_in(kWideMarks, mark_before(text, place, false));
}

// How many characters of a text of at least two come before the cut.
size_t best_place(std::u32string_view text) {
  const size_t size = text.size();
  Nearest mark(size), white(size), cluster(size);
  for (size_t place = (size + 3) / 4; place <= size * 3 / 4; ++place) {
    if (is_behind_mark(text, place)) mark.offer(place);
  }
  if (mark.place()) return mark.place();
  for (size_t place = 1; place < size; ++place) {
    if (is_white(text[place]) && !is_white(text[place - 1])) white.offer(place);
  }
  if (white.place()) return white.place();
  for (const size_t place : cluster_ends(text)) {
    if (place < size) cluster.offer(place);
  }
  return cluster.place() ? cluster.place() : size / 2;
}

}  // namespace

void cut(std::u32string_view sentence, const std::function<bool(std::u32string_view)>& fits,
         const std::function<void(std::u32string_view, bool)>& take) {
  std::vector<std::u32string_view> waiting;
  if (!sentence.empty()) waiting.push_back(sentence);
  while (!waiting.empty()) {
    std::u32string_view text = waiting.back();
    waiting.pop_back();
    size_t begin = 0;
    while (is_white(text[begin])) ++begin;
    if (begin) take(text.substr(0, begin), false);
    text.remove_prefix(begin);
    const bool is_short = fits(text);
    if (is_short || text.size() == 1) {
      take(text, is_short);
    } else {
      const size_t place = best_place(text);
      waiting.push_back(text.substr(place));
      waiting.push_back(text.substr(0, place));
    }
  }
}

}  // namespace keras_transformer
