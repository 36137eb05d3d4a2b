// Texts in, texts out, with an exported folder: keras_transformer_runner/runner.py in C++.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiled_file.h"
#include "folder.h"
#include "sentences.h"
#include "weight_cache.h"

namespace keras_transformer {

struct Translation {
  std::string text;
  Ids ids;  // EOS at the end unless it was cut
  float score;
  bool is_cut;
};

// Whether to go on.
using TakePiece = std::function<bool(std::string_view)>;

struct Classes {
  std::vector<float> probabilities;  // rows of as many as there are classes
  size_t rows;                       // 1, or one a token
  bool is_by_token;
  const std::vector<std::string>& labels;
};

// Named after what most do: the model of its folder translates, continues prompts or classifies.
// Safe for threads: calls take turns while the model computes.
class Translator {
 public:
  // `weight_cache` is a folder for packed weights; without one they are packed into memory.
  Translator(const std::string& folder, int num_threads,
             const std::optional<std::string>& weight_cache = std::nullopt);

  const char* kind() const { return folder_.kind.c_str(); }
  std::string translate(std::string_view text);
  std::string generate(std::string_view prompt);
  Classes classify(std::string_view text);
  // All that the file gives for an `n_best` of 0.
  std::vector<Translation> n_best(std::string_view text, int n_best);
  void stream(std::string_view text, const TakePiece& take);

  // A text of several sentences, and its parts. `language` is a BCP 47 tag, or empty.
  std::string translate_text(std::string_view text, std::string_view language);
  SplitText split(std::string_view text, std::string_view language) const;

  Ids encode(std::string_view text) const;    // with EOS, but of a prompt
  Ids translate_ids(const Ids& source_ids);   // without EOS and pads
  Ids generate_ids(const Ids& prompt_ids);    // these and what follows, without EOS and pads
  Classes classify_ids(const Ids& source_ids);
  std::string decode(const Ids& ids) const { return folder_.target->decode(ids); }

 private:
  // A signature that answers as a whole, and the memory that it reads from and writes to.
  struct Search {
    const Signature* signature;
    int32_t fixed_length;  // of the source; 0 where it is open
    Buffer source;
    std::vector<Buffer> outputs;
    int32_t source_length = 0;  // of `source`
    int64_t output_tokens = 0;  // of `outputs`
  };
  using Outputs = std::map<std::string, std::vector<int32_t>>;  // 32 bits each
  class Steps;

  void find_searches();
  bool continues() const { return folder_.kind == "generate"; }
  void check_kind(const char* wanted) const;
  void check_source(const Ids& ids) const;
  Search& search_for(size_t source_length);
  void prepare(Search& search, int32_t length);
  Outputs run(const Ids& source_ids);
  Ids prompt(const Ids& ids) const;
  Ids content(const int32_t* row, size_t count) const;
  void check_steps() const;
  void check_steps_of_prompts() const;

  Folder folder_;
  CompiledFile file_;
  MappedPages pages_;             // of the model's file, where packed weights have one
  std::vector<Search> searches_;  // in the order of the folder's lengths
  std::mutex mutex_;              // of `file_` and `searches_`
};

}  // namespace keras_transformer
