// SentencePiece models, in which the product keeps the ids of a prefix before all else.

#include <sentencepiece_processor.h>

#include "failure.h"
#include "tokenizers.h"

namespace keras_transformer {
namespace {

// The tag of field 4747, bytes: the prefix ids. Readers of SentencePiece models pass over it.
constexpr std::string_view kPrefixTag = "\xDA\xA8\x02";

// A protobuf number of seven bits a byte, the lowest first, taken from the start of `content`.
uint64_t take_number(std::string_view& content, const std::string& what) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !content.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(content[0]);
    content.remove_prefix(1);
    value |= uint64_t{byte & 127u} << shift;
    if (byte < 128) return value;
  }
  fail(what, " must be a serialized SentencePiece model. Received: prefix ids that are cut off");
}

// The prefix ids at the start of a file, taken from `content`; none where there are none.
Ids take_prefix(std::string_view& content, const std::string& what) {
  Ids ids;
  if (content.substr(0, kPrefixTag.size()) != kPrefixTag) return ids;
  content.remove_prefix(kPrefixTag.size());
  const uint64_t size = take_number(content, what);
  if (size > content.size()) {
    fail(what, " must be a serialized SentencePiece model. Received: prefix ids that are cut off");
  }
  std::string_view packed = content.substr(0, size);
  content.remove_prefix(size);
  while (!packed.empty()) {
    const uint64_t id = take_number(packed, what);
    if (id > INT32_MAX) fail(what, " must have prefix ids below 2^31. Received: ", id);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view content, const std::string& what) {
    const Ids prefix = take_prefix(content, what);
    const auto status = processor_.LoadFromSerializedProto({content.data(), content.size()});
    if (content.empty() || !status.ok()) {
      fail(what, " must be a serialized SentencePiece model. Received: ", content.size(),
           " bytes (", status.ToString(), ")");
    }
    vocab_size_ = processor_.GetPieceSize();
    pad_id_ = processor_.pad_id();
    unk_id_ = processor_.unk_id();
    eos_id_ = processor_.eos_id();
    bos_id_ = processor_.bos_id() < 0 ? pad_id_ : processor_.bos_id();
    if (pad_id_ < 0 || unk_id_ < 0 || eos_id_ < 0) {
      fail(what, " must define unk, and pad and eos as control symbols. Received: pad ", pad_id_,
           ", unk ", unk_id_, ", eos ", eos_id_);
    }
    set_prefix(prefix);
  }

 protected:
  Ids encode_pieces(std::string_view text) const override {
    std::vector<int> ids;
    check(processor_.Encode({text.data(), text.size()}, &ids));
    return Ids(ids.begin(), ids.end());
  }

  std::string decode_pieces(const Ids& ids) const override {
    std::string text;
    check(processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text));
    return text;
  }

 private:
  static void check(const sentencepiece::util::Status& status) {
    if (!status.ok()) fail("SentencePiece must be able to go on. Received: ", status.ToString());
  }

  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentence_piece(const std::string& content,
                                               const std::string& what) {
  return std::make_unique<SentencePieceTokenizer>(content, what);
}

}  // namespace keras_transformer
