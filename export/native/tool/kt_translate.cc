// kt-translate FOLDER [--n-best N | --stream] [--threads N] < lines: an answer a line, as
// keras-transformer-run writes it.

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "keras_transformer.h"

namespace {

constexpr const char* kUsage =
    "kt-translate FOLDER [--n-best N | --stream] [--threads N] < lines\n";

// Control characters at which a reader or a terminal begins a line, as spaces.
std::string one_line(std::string text, bool has_columns = false) {
  for (size_t at; (at = text.find("\xC2\x85")) != text.npos;) text.replace(at, 2, " ");
  for (char& byte : text) {
    const bool ends_line = (byte >= '\n' && byte <= '\r') || (byte >= 0x1c && byte <= 0x1e);
    if (ends_line || (has_columns && byte == '\t')) byte = ' ';
  }
  return text;
}

int write_piece(void*, const char* piece, size_t size) {
  const std::string line = one_line({piece, size});
  return std::fwrite(line.data(), 1, line.size(), stdout) < line.size() || std::fflush(stdout);
}

bool write_answers(kt_translator* translator, const std::string& text, int n_best, bool streams) {
  if (streams) {
    if (kt_stream(translator, text.data(), text.size(), write_piece, nullptr)) return false;
    return std::putchar('\n') != EOF;
  }
  if (n_best) {
    kt_translations* found = kt_n_best(translator, text.data(), text.size(), n_best);
    for (size_t i = 0; found && i < found->count; ++i) {
      const kt_translation& each = found->items[i];
      const std::string line = one_line({each.text, each.text_size}, true);
      std::printf("%.4f\t", static_cast<double>(each.score));
      std::cout << line << '\n';
    }
    const bool is_done = found;
    kt_free_translations(found);
    return is_done;
  }
  size_t size;
  char* answer = kt_translate(translator, text.data(), text.size(), &size);
  if (answer) std::cout << one_line({answer, size}) << std::endl;
  kt_free(answer);
  return answer;
}

}  // namespace

int main(int count, char** arguments) {
  const char* folder = nullptr;
  int n_best = 0, threads = 1;
  bool streams = false, is_wrong = false;
  for (int i = 1; i < count; ++i) {
    const std::string name = arguments[i];
    const bool has_value = i + 1 < count;
    if (name == "--n-best" && has_value) is_wrong |= (n_best = std::atoi(arguments[++i])) < 1;
    else if (name == "--threads" && has_value) threads = std::atoi(arguments[++i]);
    else if (name == "--stream") streams = true;
    else if (name[0] == '-' || folder) is_wrong = true;
    else folder = arguments[i];
  }
  if (is_wrong || !folder || (n_best && streams)) return std::fputs(kUsage, stderr), 2;

  kt_translator* translator = kt_open(folder, threads);
  bool is_well = translator;
  for (std::string line; is_well && std::getline(std::cin, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    is_well = write_answers(translator, line, n_best, streams);
  }
  if (!is_well) std::fprintf(stderr, "kt-translate: error: %s\n", kt_error());
  kt_close(translator);
  return !is_well;
}
