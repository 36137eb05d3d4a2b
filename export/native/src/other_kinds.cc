// What models do that do not translate: language models and classifiers.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "failure.h"
#include "translator.h"

namespace keras_transformer {
namespace {

// Softmax of one row, in place.
void normalize(float* row, size_t count) {
  const float largest = *std::max_element(row, row + count);
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += row[i] = std::exp(row[i] - largest);
  for (size_t i = 0; i < count; ++i) row[i] /= sum;
}

}  // namespace

void Translator::check_kind(const char* wanted) const {
  if (folder_.kind != wanted) {
    fail("the folder must hold a model with the signature '", wanted, "'. Received: '",
         folder_.kind, "'");
  }
}

// A prompt as the file takes it: a pad alone also means the empty one, which LiteRT refuses.
Ids Translator::prompt(const Ids& ids) const {
  return ids.empty() ? Ids{folder_.source->pad_id()} : ids;
}

std::string Translator::generate(std::string_view prompt) {
  check_kind("generate");
  return decode(generate_ids(encode(prompt)));
}

Ids Translator::generate_ids(const Ids& prompt_ids) {
  check_kind("generate");
  const Outputs outputs = run(prompt(prompt_ids));
  const auto& row = outputs.at("target_ids");
  return content(row.data(), row.size());
}

Classes Translator::classify(std::string_view text) {
  check_kind("classify");
  return classify_ids(encode(text));
}

Classes Translator::classify_ids(const Ids& source_ids) {
  check_kind("classify");
  if (source_ids.empty()) fail("a text to classify must have an id. Received: 0 ids");
  const Outputs outputs = run(source_ids);
  const auto& logits = outputs.at("logits");
  const LiteRtLayout& layout = searches_.back().signature->output("logits")->type.layout;
  const bool is_by_token = layout.rank == 3;
  const int32_t classes = layout.dimensions[layout.rank - 1];
  const size_t rows = is_by_token ? source_ids.size() : 1;  // behind them there are pads
  const size_t count = rows * static_cast<size_t>(std::max(0, classes));
  if (!count || logits.size() < count) {
    fail("model.tflite must have classes. Received: ", classes, " of them, ", logits.size(),
         " numbers");
  }
  if (!folder_.labels.empty() && folder_.labels.size() != static_cast<size_t>(classes)) {
    fail("in metadata.json `labels` must name every class of the model. Received: ",
         folder_.labels.size(), " labels, and in the file ", classes, " classes");
  }
  Classes found = {std::vector<float>(count), rows, is_by_token, folder_.labels};
  std::memcpy(found.probabilities.data(), logits.data(), count * sizeof(float));
  for (size_t row = 0; row < rows; ++row) {
    normalize(found.probabilities.data() + row * count / rows, count / rows);
  }
  return found;
}

}  // namespace keras_transformer
