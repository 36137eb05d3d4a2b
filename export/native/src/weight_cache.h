// Packed weights in a file that XNNPACK maps: keras_transformer_runner/packed_weights.py in C++.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "files.h"

namespace keras_transformer {

// Loads the model with its packed weights from a path; XNNPACK writes them where there is no file.
using LoadModel = std::function<void(const std::string& path)>;

// The path of a model's packed weights in a folder. Both are made where they are missing, and the
// weights where they are damaged; by one process, others wait for it. XNNPACK compares neither the
// model nor the bytes with what the file was made from, so its name says all that packed weights
// depend on, and a checksum beside it is compared before each use.
std::string packed_weights(const std::string& folder, const File& model,
                           const std::string& model_sha256, const LoadModel& load);

// The pages of a file that something else has mapped into this process for reading. LiteRT looks
// embeddings up in the model's file, and Linux maps 64 KiB around each: in the end most of the
// vocabulary.
class MappedPages {
 public:
  MappedPages() = default;
  explicit MappedPages(const File& file);  // none of a file that is not worth the time

  // Gives back those that were read; they come from the system's cache when needed.
  void let_go() const;

 private:
  struct Range {
    uintptr_t start, end;
  };
  std::vector<Range> ranges_;
};

}  // namespace keras_transformer
