// Tokenizers that look pieces up in a table: bytes, characters, and words split beforehand.
// keras_transformer_runner/tokenizers/tables.py defines them.

#include <initializer_list>
#include <unordered_map>

#include "failure.h"
#include "record.h"
#include "tokenizers.h"
#include "utf8.h"

namespace keras_transformer {
namespace {

constexpr std::string_view kUnknown = "\xE2\x81\x87";  // U+2047, what an unknown id reads as
constexpr int32_t kBytes = 256;

class TableTokenizer : public Tokenizer {
 protected:
  // Special ids, then the entries, then ids without text.
  void set_table(std::vector<std::string> keys, std::vector<std::string> surfaces,
                 const std::string& unknown, int32_t first = 4, int32_t unused = 0) {
    for (size_t i = 0; i < keys.size(); ++i) {
      ids_.emplace(std::move(keys[i]), first + static_cast<int32_t>(i));
    }
    surfaces_.resize(static_cast<size_t>(first));
    surfaces_[static_cast<size_t>(unk_id_)] = unknown;
    surfaces_.insert(surfaces_.end(), surfaces.begin(), surfaces.end());
    surfaces_.resize(surfaces_.size() + static_cast<size_t>(unused));
    vocab_size_ = static_cast<int32_t>(surfaces_.size());
  }

  virtual std::vector<std::string_view> pieces_of(std::string_view text) const = 0;

  Ids encode_pieces(std::string_view text) const override {
    Ids ids;
    for (const std::string_view piece : pieces_of(text)) {
      const auto found = ids_.find(std::string(piece));
      ids.push_back(found == ids_.end() ? unk_id_ : found->second);
    }
    return ids;
  }

  std::string decode_pieces(const Ids& ids) const override {
    std::string text;
    for (const int32_t id : ids) text += surfaces_[static_cast<size_t>(id)];
    return repaired(text);
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::string> surfaces_;
};

// --- The kinds ---------------------------------------------------------------------------------

class BytesTokenizer : public TableTokenizer {
 public:
  BytesTokenizer(const Json& fields, const std::string& what) {
    const auto layout = fields.find("layout");
    const bool has_layout = layout != fields.end() && !layout->is_null();
    if (has_layout && *layout != "byt5") {
      fail("in ", what, " `layout` must be null or \"byt5\". Received: ",
           layout->dump(-1, ' ', true).substr(0, 100));
    }
    if (has_layout) pad_id_ = bos_id_ = 0, eos_id_ = 1, unk_id_ = 2;
    const int32_t first = has_layout ? 3 : 4, least = first + kBytes;
    const int32_t size = count_field(fields, "vocab_size", what, has_layout ? 384 : 260);
    if (size < least) {
      fail("in ", what, " `vocab_size` must be at least ", least, ". Received: ", size);
    }
    std::vector<std::string> keys;
    for (int value = 0; value < kBytes; ++value) keys.emplace_back(1, static_cast<char>(value));
    set_table(keys, keys, std::string(kUnknown), first, size - least);
  }

 protected:
  std::vector<std::string_view> pieces_of(std::string_view text) const override {
    text = stripped(text);
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    return bytes;
  }
};

// Fails unless there are entries and all are different.
void check_entries(const std::vector<std::string>& entries, const char* name,
                   const std::string& what) {
  if (entries.empty()) fail("in ", what, " `", name, "` must hold an entry. Received: none");
  std::unordered_map<std::string_view, int> seen;
  for (const auto& entry : entries) {
    if (seen[entry]++) {
      fail("in ", what, " `", name, "` must be different. Received twice: ", entry);
    }
  }
}

class CharacterTokenizer : public TableTokenizer {
 public:
  CharacterTokenizer(const Json& fields, const std::string& what) {
    const std::string all = string_field(fields, "characters", what);
    const auto found = characters(all);
    std::vector<std::string> keys(found.begin(), found.end());
    check_entries(keys, "characters", what);
    set_table(keys, keys, std::string(kUnknown));
  }

 protected:
  std::vector<std::string_view> pieces_of(std::string_view text) const override {
    return characters(stripped(text));
  }
};

class VocabularyTokenizer : public TableTokenizer {
 public:
  VocabularyTokenizer(const Json& fields, const std::string& what) {
    joiner_ = fields.contains("joiner") ? string_field(fields, "joiner", what) : "@@";
    const auto words = fields.find("words");
    if (words == fields.end() || !words->is_array()) {
      fail("in ", what, " `words` must be a list of strings. Received: another value or none");
    }
    std::vector<std::string> keys, surfaces;
    for (const auto& word : *words) {
      if (!word.is_string()) fail("in ", what, " `words` must hold strings. Received: another");
      keys.push_back(word.get<std::string>());
      const auto parts = split(keys.back());
      if (parts.size() != 1 || parts[0] != keys.back()) {
        fail("in ", what, " `words` must be pieces without white space. Received: ", word.dump());
      }
      surfaces.push_back(surface(keys.back()));
    }
    check_entries(keys, "words", what);
    set_table(keys, surfaces, surface(std::string(kUnknown)));
  }

 protected:
  std::vector<std::string_view> pieces_of(std::string_view text) const override {
    return split(text);
  }

  std::string decode_pieces(const Ids& ids) const override {
    std::string text = TableTokenizer::decode_pieces(ids);
    if (!text.empty() && text.back() == ' ') text.pop_back();
    return text;
  }

 private:
  // What a piece adds to a text: one that ends in the joiner goes on in the next one.
  std::string surface(const std::string& piece) const {
    const size_t end = piece.size() - joiner_.size();
    const bool goes_on = !joiner_.empty() && piece.size() >= joiner_.size() &&
                         piece.compare(end, joiner_.size(), joiner_) == 0;
    return goes_on ? piece.substr(0, end) : piece + " ";
  }

  std::string joiner_;
};

// --- From a file -------------------------------------------------------------------------------

// Fails if there is a field that this version does not know: it may change the ids.
void check_names(const Json& fields, std::initializer_list<std::string_view> names,
                 const std::string& what) {
  for (const auto& field : fields.items()) {
    bool is_known = false;
    for (const std::string_view name : names) is_known = is_known || field.key() == name;
    if (!is_known) fail(what, " must have fields of its type only. Received: ", field.key());
  }
}

std::unique_ptr<Tokenizer> of_kind(const Json& fields, const std::string& what) {
  const std::string kind = string_field(fields, "type", what);
  if (kind == "bytes") {
    check_names(fields, {"format", "type", "prefix_ids", "layout", "vocab_size"}, what);
    return std::make_unique<BytesTokenizer>(fields, what);
  }
  if (kind == "characters") {
    check_names(fields, {"format", "type", "prefix_ids", "characters"}, what);
    return std::make_unique<CharacterTokenizer>(fields, what);
  }
  if (kind == "vocabulary") {
    check_names(fields, {"format", "type", "prefix_ids", "joiner", "words"}, what);
    return std::make_unique<VocabularyTokenizer>(fields, what);
  }
  fail(what, " must have one of the types bytes, characters and vocabulary. Received: ", kind);
}

}  // namespace

std::unique_ptr<Tokenizer> load_table(const std::string& content, const std::string& what) {
  const Json fields = parse_record(content, what);
  const int32_t format = count_field(fields, "format", what);
  if (format != 1) fail(what, " must have format 1. Received: ", format);
  auto tokenizer = of_kind(fields, what);
  tokenizer->set_prefix(ids_field(fields, "prefix_ids", what));
  return tokenizer;
}

}  // namespace keras_transformer
