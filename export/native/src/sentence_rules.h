// Which words of a language end no sentence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace keras_transformer {

class SentenceRules {
 public:
  // Fails if `language` is neither empty nor a BCP 47 tag.
  explicit SentenceRules(std::string_view language);

  // Places of a line where a sentence ends and another follows.
  std::vector<size_t> ends(std::u32string_view line) const;

 private:
  bool are_joined(std::u32string_view line, size_t begin, size_t place) const;
  bool ends_no_sentence(std::u32string_view line, size_t begin, size_t stop,
                        char32_t follows) const;

  std::string locale_;
  std::vector<std::u32string> always_, before_numbers_;
  bool has_ordinals_ = false;
};

}  // namespace keras_transformer
