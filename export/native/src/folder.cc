#include "folder.h"

#include <filesystem>

#include "failure.h"
#include "record.h"

namespace keras_transformer {
namespace {

constexpr int32_t kFormat = 1;
constexpr const char* kModel = "model.tflite";
constexpr const char* kMetadata = "metadata.json";

// The name of the only file of a side that the metadata list; empty if there is none.
std::string tokenizer_file(const Json& checksums, const std::string& stem) {
  std::string found;
  for (const char* suffix : {".model", ".json"}) {
    if (!checksums.contains(stem + suffix)) continue;
    if (!found.empty()) fail(kMetadata, " must list one tokenizer a side. Received: two ", stem);
    found = stem + suffix;
  }
  return found;
}

void check_names(const Json& checksums, const std::string& source, const std::string& target) {
  if (source.empty()) fail(kMetadata, " must list a tokenizer. Received: none");
  for (const auto& file : checksums.items()) {
    const std::string& name = file.key();
    if (name != kModel && name != source && name != target) {
      fail(kMetadata, " must list ", kModel, " and one tokenizer a side. Received: ", name);
    }
  }
}

std::unique_ptr<File> checked_file(const std::string& folder, const std::string& name,
                                   const Json& checksums) {
  auto file = std::make_unique<File>(folder + "/" + name);
  const auto sum = checksums.find(name);
  if (sum == checksums.end() || !sum->is_string()) {
    fail(kMetadata, " must have the sha256 of each file. Received: none of ", name);
  }
  file->check(sum->get<std::string>());
  return file;
}

void check_ids(const Json& metadata, const Tokenizer& tokenizer, const char* size) {
  const std::pair<const char*, int32_t> expected[] = {{size, tokenizer.vocab_size()},
                                                      {"pad_id", tokenizer.pad_id()},
                                                      {"bos_id", tokenizer.bos_id()},
                                                      {"eos_id", tokenizer.eos_id()}};
  for (const auto& [name, value] : expected) {
    const int32_t received = count_field(metadata, name, kMetadata);
    if (received != value) {
      fail(kMetadata, " and its tokenizer must agree on ", name, ". Received: ", received,
           ", and in the tokenizer ", value);
    }
  }
}

void check_prefix(const Json& metadata, const Tokenizer& tokenizer, const char* name) {
  const Ids ids = ids_field(metadata, name, kMetadata);
  const bool is_listed = metadata.contains(name);  // an empty one is not
  if (ids != tokenizer.prefix_ids() || is_listed == ids.empty()) {
    fail(kMetadata, " and its tokenizer must agree on ", name, ". Received: other ids");
  }
}

std::vector<std::string> labels_of(const Json& metadata) {
  const auto labels = metadata.find("labels");
  if (labels == metadata.end()) return {};
  const auto is_text = [](const Json& each) { return each.is_string(); };
  if (!labels->is_array() || !std::all_of(labels->begin(), labels->end(), is_text)) {
    fail("in ", kMetadata, " `labels` must be a list of strings. Received: another value");
  }
  const Json num_classes = metadata.value("num_classes", Json(labels->size()));
  if (!labels->empty() && num_classes != labels->size()) {
    fail("in ", kMetadata, " `labels` must name all of `num_classes`. Received: ", labels->size(),
         " labels, num_classes=", num_classes.dump(-1, ' ', true).substr(0, 100));
  }
  return labels->get<std::vector<std::string>>();
}

Json read_metadata(const std::string& folder) {
  const std::string path = folder + "/" + kMetadata;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    fail("an exported folder must hold ", kMetadata, ". Received: ", received(folder));
  }
  return parse_record(File(path).content(), path);
}

void read_search(const Json& metadata, Folder& folder) {
  folder.longest = count_field(metadata, "max_positions", kMetadata, INT32_MAX);
  const auto search = metadata.find("search");
  if (search == metadata.end() || !search->is_object()) {
    fail(kMetadata, " must have `search`, as exports write it: export the model again. ",
         "Received: another value or none");
  }
  folder.extra_length = count_field(*search, "extra_length", kMetadata);
  const int64_t max_length = count_field(*search, "max_length", kMetadata, INT32_MAX);
  folder.longest = std::min(folder.longest, max_length);
  folder.n_best = count_field(*search, "n_best", kMetadata, 1);
  folder.has_forced_eos = bool_field(*search, "forced_eos", kMetadata, false);
}

}  // namespace

Folder open_folder(const std::string& given) {
  const std::string path = given.empty() ? "." : given;
  const Json metadata = read_metadata(path);
  const int32_t format = count_field(metadata, "format", kMetadata);
  if (format != kFormat) fail(kMetadata, " must have format ", kFormat, ". Received: ", format);
  Folder folder;
  folder.kind = string_field(metadata, "signature", kMetadata);
  if (folder.kind != "translate" && folder.kind != "generate" && folder.kind != "classify") {
    fail("the folder must hold a model with one of the signatures 'translate', 'generate' and ",
         "'classify'. Received: ", folder.kind);
  }
  folder.max_source_length = count_field(metadata, "max_source_length", kMetadata);
  folder.labels = labels_of(metadata);
  folder.lengths = source_lengths(metadata, folder.kind, folder.max_source_length, kMetadata);
  const auto checksums = metadata.find("sha256");
  if (checksums == metadata.end() || !checksums->is_object()) {
    fail(kMetadata, " must have the field `sha256`, an object. Received: another value or none");
  }
  const std::string source = tokenizer_file(*checksums, "tokenizer");
  const std::string target = tokenizer_file(*checksums, "target_tokenizer");
  check_names(*checksums, source, target);

  folder.model = checked_file(path, kModel, *checksums);
  folder.model_sha256 = checksums->at(kModel).get<std::string>();
  const auto load = [&](const std::string& name, const char* size) {
    const auto content = checked_file(path, name, *checksums)->content();
    std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(content, path + "/" + name);
    check_ids(metadata, *tokenizer, size);
    return tokenizer;
  };
  folder.source = load(source, "vocab_size");
  folder.target = target.empty() ? folder.source : load(target, "target_vocab_size");
  check_ids(metadata, *folder.target, "target_vocab_size");
  check_prefix(metadata, *folder.source, "source_prefix_ids");
  check_prefix(metadata, *folder.target, "target_prefix_ids");
  // A prompt goes on.
  folder.adds_eos = bool_field(metadata, "adds_eos", kMetadata, true) && folder.kind != "generate";
  if (folder.kind != "classify") read_search(metadata, folder);
  check_seal(metadata, path + "/" + kMetadata);
  return folder;
}

}  // namespace keras_transformer
