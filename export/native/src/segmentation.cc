#include "segmentation.h"

#include "failure.h"

#ifdef KT_HAS_ICU
#include <unicode/ubrk.h>
#include <unicode/uchar.h>

#include <memory>
#endif

namespace keras_transformer {

bool is_white(char32_t character) {
  return (character >= 0x09 && character <= 0x0D) || character == 0x20 || character == 0x85 ||
         character == 0xA0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200A) ||
         character == 0x2028 || character == 0x2029 || character == 0x202F || character == 0x205F ||
         character == 0x3000;
}

#ifdef KT_HAS_ICU

namespace {

constexpr uint32_t kWord = U_GC_L_MASK | U_GC_M_MASK | U_GC_N_MASK;
constexpr uint32_t kOpening = U_GC_PS_MASK | U_GC_PI_MASK;

bool is_of(char32_t character, uint32_t categories) {
  return U_MASK(u_charType(static_cast<UChar32>(character))) & categories;
}

std::u16string utf16(std::u32string_view text) {
  std::u16string units;
  units.reserve(text.size());
  for (const char32_t character : text) {
    if (character < 0x10000) {
      units += static_cast<char16_t>(character);
    } else {
      units += static_cast<char16_t>(0xD7C0 + (character >> 10));
      units += static_cast<char16_t>(0xDC00 + (character & 0x3FF));
    }
  }
  return units;
}

std::vector<size_t> ends_of(UBreakIteratorType type, const char* locale,
                            std::u32string_view text) {
  if (text.empty()) return {};
  const std::u16string units = utf16(text);
  if (units.size() > INT32_MAX) fail("a line must have fewer than 2^31 characters");
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UBreakIterator, void (*)(UBreakIterator*)> breaks(
      ubrk_open(type, locale, reinterpret_cast<const UChar*>(units.data()),
                static_cast<int32_t>(units.size()), &status),
      ubrk_close);
  if (U_FAILURE(status)) fail("ICU must have its data. Received: ", u_errorName(status));
  std::vector<size_t> ends;
  size_t place = 0, unit = 0;
  for (int32_t end = ubrk_next(breaks.get()); end != UBRK_DONE; end = ubrk_next(breaks.get())) {
    for (; unit < static_cast<size_t>(end); ++place) unit += text[place] < 0x10000 ? 1 : 2;
    ends.push_back(place);
  }
  return ends;
}

}  // namespace

bool is_lower_case(char32_t character) { return is_of(character, U_GC_LL_MASK); }
bool is_capital(char32_t character) { return is_of(character, U_GC_LU_MASK); }
bool is_digit(char32_t character) { return is_of(character, U_GC_ND_MASK); }
bool is_of_a_word(char32_t character) { return is_of(character, kWord); }
bool is_opening(char32_t character) { return is_of(character, kOpening); }

char32_t to_capital(char32_t character) {
  return static_cast<char32_t>(u_toupper(static_cast<UChar32>(character)));
}

std::vector<size_t> sentence_ends(std::u32string_view line, const std::string& locale) {
  return ends_of(UBRK_SENTENCE, locale.c_str(), line);
}

std::vector<size_t> cluster_ends(std::u32string_view text) {
  return ends_of(UBRK_CHARACTER, "root", text);
}

#else

namespace {

[[noreturn]] void fail_without() {
  fail("whole texts must have ICU: install libicu-dev and build again. Received: a library ",
       "without it");
}

}  // namespace

bool is_lower_case(char32_t) { fail_without(); }
bool is_capital(char32_t) { fail_without(); }
bool is_digit(char32_t) { fail_without(); }
bool is_of_a_word(char32_t) { fail_without(); }
bool is_opening(char32_t) { fail_without(); }
char32_t to_capital(char32_t) { fail_without(); }
std::vector<size_t> sentence_ends(std::u32string_view, const std::string&) { fail_without(); }
std::vector<size_t> cluster_ends(std::u32string_view) { fail_without(); }

#endif

}  // namespace keras_transformer
