// kt-translate FOLDER [--n-best N | --stream | --text [--language TAG]] [--threads N]
// [--weight-cache DIR] < lines: an answer a line, or that to a whole text, as keras-transformer-run
// writes it. The folder's model translates, continues prompts or classifies.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>

#include "keras_transformer.h"

namespace {

constexpr const char* kUsage =
    "kt-translate FOLDER [--n-best N | --stream | --text [--language TAG]] [--threads N] "
    "[--weight-cache DIR] < lines\n";

// Control characters at which a reader or a terminal begins a line, as spaces.
std::string one_line(std::string text, bool has_columns = false) {
  for (size_t at; (at = text.find("\xC2\x85")) != text.npos;) text.replace(at, 2, " ");
  for (char& byte : text) {
    const bool ends_line = (byte >= '\n' && byte <= '\r') || (byte >= 0x1c && byte <= 0x1e);
    if (ends_line || (has_columns && byte == '\t')) byte = ' ';
  }
  return text;
}

bool write(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && !std::fflush(stdout);
}

int write_piece(void*, const char* piece, size_t size) { return !write(one_line({piece, size})); }

std::string row_of(const kt_translation& each) {
  char score[64];
  std::snprintf(score, sizeof score, "%.4f\t", static_cast<double>(each.score));
  return score + one_line({each.text, each.text_size}, true) + "\n";
}

// The likeliest class of each row and its probability.
std::string text_of(const kt_classes& found) {
  std::string text;
  for (size_t row = 0; row < found.row_count; ++row) {
    const float* shares = found.probabilities + row * found.class_count;
    const float* best = std::max_element(shares, shares + found.class_count);
    const auto index = static_cast<size_t>(best - shares);
    char share[64];
    std::snprintf(share, sizeof share, ":%.4f", static_cast<double>(*best));
    if (row) text += ' ';
    text += (found.labels ? found.labels[index] : std::to_string(index)) + share;
  }
  return text;
}

bool write_classes(kt_translator* translator, const std::string& text) {
  kt_classes* found = kt_classify(translator, text.data(), text.size());
  if (found) write(one_line(text_of(*found)) + "\n");
  const bool is_there = found;
  kt_free_classes(found);
  return is_there;
}

// Whether there is an answer to write, which may be in vain: see `main`.
bool write_answers(kt_translator* translator, const std::string& text, int n_best, bool streams) {
  if (streams) {
    const int status = kt_stream(translator, text.data(), text.size(), write_piece, nullptr);
    write("\n");
    return !status;
  }
  if (n_best) {
    kt_translations* found = kt_n_best(translator, text.data(), text.size(), n_best);
    for (size_t i = 0; found && i < found->count; ++i) write(row_of(found->items[i]));
    const bool is_there = found;
    kt_free_translations(found);
    return is_there;
  }
  const std::string kind = kt_kind(translator);
  if (kind == "classify") return write_classes(translator, text);
  size_t size;
  const auto answer_of = kind == "generate" ? kt_generate : kt_translate;
  char* answer = answer_of(translator, text.data(), text.size(), &size);
  if (answer) write(one_line({answer, size}) + "\n");
  const bool is_there = answer;
  kt_free(answer);
  return is_there;
}

// All of standard input, without a byte order mark.
std::string whole_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  return text.compare(0, 3, "\xEF\xBB\xBF") ? text : text.substr(3);
}

bool write_text(kt_translator* translator, const char* language) {
  const std::string text = whole_input();
  size_t size;
  char* answer = kt_translate_text(translator, text.data(), text.size(), language, &size);
  if (answer) write({answer, size});
  const bool is_there = answer;
  kt_free(answer);
  return is_there;
}

}  // namespace

int main(int count, char** arguments) {
  const char *folder = nullptr, *weight_cache = nullptr, *language = nullptr;
  int n_best = 0, threads = 1;
  bool streams = false, is_whole = false, is_wrong = false;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    const bool has_value = i + 1 < count;
    if (name == "--n-best" && has_value) is_wrong |= (n_best = std::atoi(arguments[++i])) < 1;
    else if (name == "--threads" && has_value) threads = std::atoi(arguments[++i]);
    else if (name == "--weight-cache" && has_value) weight_cache = arguments[++i];
    else if (name == "--stream") streams = true;
    else if (name == "--text") is_whole = true;
    else if (name == "--language" && has_value) language = arguments[++i];
    else if (name[0] == '-' || folder) is_wrong = true;
    else folder = arguments[i];
  }
  is_wrong |= !folder || (n_best > 0) + streams + is_whole > 1 || (language && !is_whole);
  if (is_wrong) return std::fputs(kUsage, stderr), 2;

  kt_translator* translator = kt_open_cached(folder, threads, weight_cache);
  bool is_well = translator;
  if (is_well && is_whole) is_well = write_text(translator, language);
  for (std::string line; is_well && !std::ferror(stdout) && std::getline(std::cin, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    is_well = write_answers(translator, line, n_best, streams);
  }
  const bool is_full = std::ferror(stdout);
  const char* fault = is_full ? "standard output must take what is written" : kt_error();
  if (is_full || !is_well) std::fprintf(stderr, "kt-translate: error: %s\n", fault);
  kt_close(translator);
  return is_full || !is_well;
}
