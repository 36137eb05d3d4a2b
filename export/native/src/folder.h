// An exported folder: its files, and whether they are whole and fit together.
// keras_transformer_runner/folder.py is the same in Python.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "files.h"
#include "lengths.h"
#include "tokenizers.h"

namespace keras_transformer {

struct Folder {
  std::string kind;  // what the model does, and the name of its signature
  std::unique_ptr<File> model;
  std::string model_sha256;
  std::shared_ptr<const Tokenizer> source, target;  // the same one, where both sides share it
  int32_t max_source_length = 0;                    // EOS included
  std::vector<SourceLength> lengths;                // at least one
  bool adds_eos = true;
  std::vector<std::string> labels;  // of a classifier; none where it has no names
  // Of the search.
  int32_t n_best = 1;
  bool has_forced_eos = false;

  // The most tokens of an answer to a source of so many.
  int64_t most_tokens(int64_t source_length) const {
    return std::min(source_length + extra_length, longest);
  }
  int64_t extra_length = 0, longest = INT32_MAX;
};

// Fails unless all files are what the export wrote.
Folder open_folder(const std::string& path);

}  // namespace keras_transformer
