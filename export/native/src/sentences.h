// Whole texts: their sentences, and what lies between those. docs/whole_texts.md is the rule,
// keras_transformer_runner/sentences.py is the same in Python.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace keras_transformer {

// gaps[0] + sentences[0] + gaps[1] + ... is the text.
struct SplitText {
  std::vector<std::string> sentences;  // none empty, none with white space at an end
  std::vector<std::string> gaps;       // one more

  // The text with a translation in the place of each sentence.
  std::string with_translations(const std::vector<std::string>& translations) const;
};

// Whether a sentence is short enough.
using Fits = std::function<bool(const std::string&)>;

// The sentences of valid UTF-8. Of those that do not fit the parts that do; a character that alone
// does not lies in a gap. `language` is a BCP 47 tag, or empty.
SplitText split_text(std::string_view text, std::string_view language, const Fits& fits);

}  // namespace keras_transformer
