#include "translator.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "failure.h"
#include "utf8.h"

namespace keras_transformer {
namespace {

// A SentencePiece piece has at most 16 characters, of at most 4 bytes. A longer text cannot fit,
// unless it is mostly white space, and is refused before a tokenizer reads it.
constexpr int64_t kBytesAToken = 64;
constexpr float kImpossible = -1e29f;  // below it, the search has found no such hypothesis
// LiteRT writes an output whole, wherever it is told to: also where metadata lie about its size.
constexpr size_t kBeyond = size_t{1} << 24;

std::string packed_weights_of(const Folder& folder, int num_threads, const std::string& cache) {
  return packed_weights(cache, *folder.model, folder.model_sha256, [&](const std::string& path) {
    CompiledFile(*folder.model, num_threads, path);
  });
}

}  // namespace

Translator::Translator(const std::string& folder, int num_threads,
                       const std::optional<std::string>& weight_cache)
    : folder_(open_folder(folder)),
      file_(*folder_.model, num_threads,
            weight_cache ? packed_weights_of(folder_, num_threads, *weight_cache) : "") {
  if (weight_cache) pages_ = MappedPages(*folder_.model);
  find_searches();
}

// `translate` takes a source of any length; `translate_32` and its like take one, and less with
// pads behind it. So do `generate` and `classify`.
void Translator::find_searches() {
  const char* input = continues() ? "prompt_ids" : "source_ids";
  const char* output = folder_.kind == "classify" ? "logits" : "target_ids";
  for (const auto& [name, tokens] : folder_.lengths) {
    const Signature* found = file_.signature(name);
    if (!found || found->inputs.size() != 1 || !found->input(input) || !found->output(output) ||
        found->inputs[0].type.layout.rank != 2) {
      fail("model.tflite must have the signature that metadata.json names, one of ['translate', ",
           "'generate', 'classify']. Received: '", name, "', and in the file ",
           file_.signatures().size(), " signatures");
    }
    const int32_t length = std::max(0, found->inputs[0].type.layout.dimensions[1]);
    if (tokens && length != tokens) {
      fail("the signature '", name, "' must take ", tokens, " tokens. Received: ", length);
    }
    searches_.push_back({found, length, {}, {}});
  }
}

Translator::Search& Translator::search_for(size_t source_length) {
  for (Search& search : searches_) {
    if (!search.fixed_length || source_length <= static_cast<size_t>(search.fixed_length)) {
      return search;
    }
  }
  fail("a source must have at most the ", searches_.back().fixed_length,
       " tokens of the longest signature. Received: ", source_length);
}

void Translator::prepare(Search& search, int32_t length) {
  const Tensor& input = search.signature->inputs[0];
  if (!search.fixed_length) file_.resize(*search.signature, 0, {1, length});
  if (search.source_length != length) {
    search.source_length = 0;  // until there is memory
    search.source = file_.buffer(input, {length});
    search.source_length = length;
  }
  const int64_t tokens = folder_.most_tokens(length);
  if (search.output_tokens >= tokens) return;
  search.output_tokens = 0;
  search.outputs.clear();
  const int32_t most = static_cast<int32_t>(std::min<int64_t>(tokens, INT32_MAX));
  for (Tensor output : search.signature->outputs) {
    // The file may not know how many hypotheses there are.
    const bool has_rows = output.name == "hypotheses", is_score = output.name == "scores";
    int32_t* lengths = output.type.layout.dimensions;
    if ((has_rows || is_score) && lengths[1] < 0) lengths[1] = std::max(1, folder_.n_best);
    search.outputs.push_back(file_.buffer(output, {most}, kBeyond));
  }
  search.output_tokens = tokens;
}

void Translator::check_source(const Ids& ids) const {
  if (ids.size() > static_cast<size_t>(folder_.max_source_length)) {
    fail("a source must have at most `max_source_length` = ", folder_.max_source_length,
         " tokens. Received: ", ids.size());
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= folder_.source->vocab_size()) {
      fail("ids must lie in [0, ", folder_.source->vocab_size(), "). Received: ", id);
    }
  }
}

Translator::Outputs Translator::run(const Ids& source_ids) {
  check_source(source_ids);
  const std::lock_guard<std::mutex> lock(mutex_);
  Search& search = search_for(source_ids.size());
  Ids ids = source_ids;
  if (search.fixed_length) {
    ids.resize(static_cast<size_t>(search.fixed_length), folder_.source->pad_id());
  }
  prepare(search, static_cast<int32_t>(ids.size()));
  search.source.write(ids.data(), ids.size());
  std::vector<const Buffer*> outputs;
  for (const Buffer& buffer : search.outputs) outputs.push_back(&buffer);
  file_.run(*search.signature, {&search.source}, outputs);
  const auto counts = file_.written(*search.signature);
  pages_.let_go();
  Outputs found;
  for (size_t i = 0; i < counts.size(); ++i) {
    const std::string& name = search.signature->outputs[i].name;
    if (counts[i] > search.outputs[i].count()) {
      fail("metadata.json must say what the model does: by it `", name, "` has at most ",
           search.outputs[i].count(), " numbers. Received: ", counts[i]);
    }
    found[name].resize(counts[i]);
    search.outputs[i].read(found[name].data(), counts[i]);
  }
  return found;
}

// The ids of a row up to EOS. Pads go, but do not end it: an untrained model may choose one in the
// middle.
Ids Translator::content(const int32_t* row, size_t count) const {
  Ids ids;
  const Tokenizer& target = *folder_.target;
  for (size_t i = 0; i < count && row[i] != target.eos_id(); ++i) {
    if (row[i] != target.pad_id()) ids.push_back(row[i]);
  }
  return ids;
}

Ids Translator::encode(std::string_view text) const {
  const std::string readable = repaired(text);
  const int64_t most = kBytesAToken * folder_.max_source_length;
  if (static_cast<int64_t>(readable.size()) > most) {
    fail("a text must have at most `max_source_length` = ", folder_.max_source_length,
         " tokens, and so at most ", most, " bytes. Received: ", readable.size(), " bytes");
  }
  Ids ids = folder_.source->encode(readable);
  if (folder_.adds_eos) ids.push_back(folder_.source->eos_id());
  return ids;
}

std::string Translator::translate(std::string_view text) {
  check_kind("translate");
  return decode(translate_ids(encode(text)));
}

SplitText Translator::split(std::string_view text, std::string_view language) const {
  const auto longest = static_cast<size_t>(folder_.max_source_length);
  return split_text(repaired(text), language, [&](const std::string& sentence) {
    return sentence.size() <= kBytesAToken * longest && encode(sentence).size() <= longest;
  });
}

std::string Translator::translate_text(std::string_view text, std::string_view language) {
  check_kind("translate");
  const SplitText found = split(text, language);
  std::vector<std::string> translations;
  for (const std::string& sentence : found.sentences) translations.push_back(translate(sentence));
  return found.with_translations(translations);
}

Ids Translator::translate_ids(const Ids& source_ids) {
  check_kind("translate");
  if (source_ids.empty()) return {};
  const Outputs outputs = run(source_ids);
  const auto& row = outputs.at("target_ids");
  return content(row.data(), row.size());
}

std::vector<Translation> Translator::n_best(std::string_view text, int n_best) {
  if (!continues()) check_kind("translate");
  const auto& outputs_of = searches_.back().signature->outputs;
  const auto is_scores = [](const Tensor& tensor) { return tensor.name == "scores"; };
  if (std::none_of(outputs_of.begin(), outputs_of.end(), is_scores)) {
    fail("scores must be in the file: export with `BeamSearch` or `Greedy(scores=True)`. ",
         "Received: a file without them");
  }
  if (n_best < 0) fail("`n_best` must be at least 0. Received: ", n_best);
  const Ids source_ids = encode(text);
  const Outputs outputs = run(continues() ? prompt(source_ids) : source_ids);
  const auto& scores = outputs.at("scores");
  const auto& rows = outputs.at("hypotheses");
  if (scores.empty() || static_cast<size_t>(n_best) > scores.size()) {
    fail("`n_best` must be at most what the file gives, ", scores.size(),
         ": export with a larger `n_best`, which is `export --n-best N`. Received: n_best=",
         n_best);
  }
  const size_t tokens = rows.size() / scores.size();
  size_t count = n_best ? static_cast<size_t>(n_best) : scores.size();
  if (source_ids.size() == 1 && !continues()) count = 1;  // nothing has one translation, which is empty
  std::vector<Translation> found;
  for (size_t i = 0; i < count; ++i) {
    float score;
    std::memcpy(&score, &scores[i], sizeof score);
    if (score <= kImpossible) continue;
    const int32_t* row = rows.data() + i * tokens;
    Ids ids(row, row + tokens);
    ids.erase(std::remove(ids.begin(), ids.end(), folder_.target->pad_id()), ids.end());
    const bool is_cut = !ids.empty() && ids.back() != folder_.target->eos_id();
    found.push_back({decode(content(row, tokens)), std::move(ids), score, is_cut});
  }
  return found;
}

}  // namespace keras_transformer
