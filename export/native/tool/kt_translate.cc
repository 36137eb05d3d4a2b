// kt-translate FOLDER [--n-best N | --stream | --text [--language TAG]] [--threads N]
// [--weight-cache DIR] < lines: an answer a line, or that to a whole text, as keras-transformer-run
// writes it. The folder's model translates, continues prompts or classifies.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "failure.h"
#include "keras_transformer.h"
#include "options.h"
#include "standard_input.h"

using keras_transformer::fail;

namespace {

constexpr const char* kUsage =
    "kt-translate FOLDER [--n-best N | --stream | --text [--language TAG]] [--threads N] "
    "[--weight-cache DIR] < lines\n";

template <class T, void (*Free)(T*)>
struct Freer {
  void operator()(T* made) const { Free(made); }
};
template <class T, void (*Free)(T*)>
using Owned = std::unique_ptr<T, Freer<T, Free>>;

// What a function of the library gives, unless it failed.
template <class T>
T* checked(T* result) {
  if (!result) fail(kt_error());
  return result;
}

// Control characters at which a reader or a terminal begins a line, as spaces.
std::string one_line(std::string text, bool has_columns = false) {
  for (size_t at; (at = text.find("\xC2\x85")) != text.npos;) text.replace(at, 2, " ");
  for (char& byte : text) {
    const bool ends_line = (byte >= '\n' && byte <= '\r') || (byte >= 0x1c && byte <= 0x1e);
    if (ends_line || (has_columns && byte == '\t')) byte = ' ';
  }
  return text;
}

// The number of an error, or 0.
int put(const std::string& text) {
  errno = 0;
  const bool is_put =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && !std::fflush(stdout);
  return is_put ? 0 : errno ? errno : EIO;
}

void check_output(int error) {
  if (error) fail("standard output must take what is written. Received: ", std::strerror(error));
}

void write(const std::string& text) { check_output(put(text)); }

// Of a stream, which an error ends: no exception may go through the library.
int put_piece(void* error, const char* piece, size_t size) {
  return *static_cast<int*>(error) = put(one_line({piece, size}));
}

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

void write_classes(kt_translator* translator, const std::string& text) {
  const Owned<kt_classes, kt_free_classes> found(
      checked(kt_classify(translator, text.data(), text.size())));
  write(one_line(text_of(*found)) + "\n");
}

void write_best(kt_translator* translator, const std::string& text, int n_best) {
  const Owned<kt_translations, kt_free_translations> found(
      checked(kt_n_best(translator, text.data(), text.size(), n_best)));
  for (size_t i = 0; i < found->count; ++i) write(row_of(found->items[i]));
}

void write_stream(kt_translator* translator, const std::string& text) {
  int error = 0;
  if (kt_stream(translator, text.data(), text.size(), put_piece, &error)) fail(kt_error());
  check_output(error);
  write("\n");
}

void write_answer(kt_translator* translator, const std::string& text, const Options& options) {
  if (options.streams) return write_stream(translator, text);
  if (options.n_best) return write_best(translator, text, options.n_best);
  const std::string kind = kt_kind(translator);
  if (kind == "classify") return write_classes(translator, text);
  size_t size;
  const auto answer_of = kind == "generate" ? kt_generate : kt_translate;
  const Owned<void, kt_free> answer(
      checked(answer_of(translator, text.data(), text.size(), &size)));
  write(one_line({static_cast<char*>(answer.get()), size}) + "\n");
}

void write_answers(kt_translator* translator, const Options& options) {
  StandardInput input;
  while (const auto line = input.line()) {
    try {
      write_answer(translator, *line, options);
    } catch (const std::exception& error) {
      const std::string fault = error.what();
      const bool is_long = fault.find("must have at most `max_source_length`") != fault.npos;
      fail(is_long ? "line " + std::to_string(input.number()) + ": " + fault : fault);
    }
  }
  if (!input.number()) {
    fail("there must be at least one line. Received: standard input is empty");
  }
}

void write_text(kt_translator* translator, const char* language) {
  const std::string text = StandardInput().text();
  size_t size;
  const Owned<void, kt_free> answer(
      checked(kt_translate_text(translator, text.data(), text.size(), language, &size)));
  write({static_cast<char*>(answer.get()), size});
}

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

int failed(const std::exception& error, int status, const char* usage = "") {
  std::fprintf(stderr, "kt-translate: error: %s\n%s", error.what(), usage);
  return status;
}

}  // namespace

int main(int count, char** words) {
  const bool can_read = is_open(STDIN_FILENO), can_write = is_open(STDOUT_FILENO);
  Options options;
  try {
    options = read_options(count, words);
  } catch (const std::exception& error) {
    return failed(error, 2, kUsage);
  }
  try {
    if (!can_write) fail("standard output must be open for the answer. Received: a closed one");
    const Owned<kt_translator, kt_close> translator(
        checked(kt_open_cached(options.folder, options.threads, options.weight_cache)));
    if (!can_read) fail("standard input must be open to be read. Received: a closed one");
    if (options.is_whole) write_text(translator.get(), options.language);
    else write_answers(translator.get(), options);
  } catch (const std::exception& error) {
    return failed(error, 1);
  }
  return 0;
}
