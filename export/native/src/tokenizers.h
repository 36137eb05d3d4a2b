// Text to ids and back, as keras_transformer_runner.tokenizers does it in Python: same ids, same
// text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace keras_transformer {

using Ids = std::vector<int32_t>;

// Safe for threads: nothing changes once it is made.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of valid UTF-8 behind the prefix, without BOS and EOS; none where there are no pieces.
  Ids encode(std::string_view text) const;
  // The text up to the first EOS, without pads, BOS and prefix; fails for an id outside the
  // vocabulary.
  std::string decode(const Ids& ids) const;
  // Fails if an id is outside the vocabulary, or that of pad, BOS or EOS.
  void set_prefix(const Ids& ids);

  int32_t vocab_size() const { return vocab_size_; }
  int32_t pad_id() const { return pad_id_; }
  int32_t bos_id() const { return bos_id_; }
  int32_t eos_id() const { return eos_id_; }
  const Ids& prefix_ids() const { return prefix_ids_; }

 protected:
  virtual Ids encode_pieces(std::string_view text) const = 0;
  // Of ids in the vocabulary without special ones but unk.
  virtual std::string decode_pieces(const Ids& ids) const = 0;

  // The special ids of this package; some files have others.
  int32_t vocab_size_ = 0, pad_id_ = 0, unk_id_ = 1, bos_id_ = 2, eos_id_ = 3;

 private:
  Ids prefix_ids_;
};

// The tokenizer in the content of `tokenizer.model` or `tokenizer.json`; `what` names it in errors.
std::unique_ptr<const Tokenizer> load_tokenizer(const std::string& content,
                                                const std::string& what);

// Its two kinds: a SentencePiece model, and a table of pieces in JSON.
std::unique_ptr<Tokenizer> load_sentence_piece(const std::string& content, const std::string& what);
std::unique_ptr<Tokenizer> load_table(const std::string& content, const std::string& what);

}  // namespace keras_transformer
