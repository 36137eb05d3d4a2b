#include "tokenizers.h"

#include <algorithm>

#include "failure.h"

namespace keras_transformer {

Ids Tokenizer::encode(std::string_view text) const {
  Ids ids = encode_pieces(text);
  if (!ids.empty()) ids.insert(ids.begin(), prefix_ids_.begin(), prefix_ids_.end());
  return ids;
}

std::string Tokenizer::decode(const Ids& ids) const {
  Ids kept;
  bool has_ended = false;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size_) {
      fail("`ids` must be in [0, vocab_size) with vocab_size=", vocab_size_, ". Received: ", id);
    }
    has_ended = has_ended || id == eos_id_;
    if (!has_ended && id != pad_id_ && id != bos_id_) kept.push_back(id);
  }
  const auto most = kept.begin() + static_cast<std::ptrdiff_t>(
                                       std::min(kept.size(), prefix_ids_.size()));
  kept.erase(kept.begin(), std::mismatch(kept.begin(), most, prefix_ids_.begin()).first);
  return decode_pieces(kept);
}

void Tokenizer::set_prefix(const Ids& ids) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size_ || id == pad_id_ || id == bos_id_ || id == eos_id_) {
      fail("`prefix_ids` must be in [0, ", vocab_size_, "), not those of pad, BOS and EOS. ",
           "Received: ", id);
    }
  }
  prefix_ids_ = ids;
}

std::unique_ptr<const Tokenizer> load_tokenizer(const std::string& content,
                                                const std::string& what) {
  // No SentencePiece model begins so: its first tag is 0x0a.
  return content.rfind("{", 0) == 0 ? load_table(content, what) : load_sentence_piece(content, what);
}

}  // namespace keras_transformer
