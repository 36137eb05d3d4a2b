// Sentences that are too long for a model, cut at the best places.
#pragma once

#include <functional>
#include <string_view>

namespace keras_transformer {

// Gives a sentence in parts: those that fit, and what is not a sentence, which is white space at a
// cut or a character that alone does not fit.
void cut(std::u32string_view sentence, const std::function<bool(std::u32string_view)>& fits,
         const std::function<void(std::u32string_view part, bool is_sentence)>& take);

}  // namespace keras_transformer
