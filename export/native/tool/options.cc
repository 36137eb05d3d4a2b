#include "options.h"

#include <charconv>
#include <string_view>

#include "failure.h"

using keras_transformer::fail;

namespace {

int number_of(std::string_view word, std::string_view name) {
  int number = 0;
  const char* end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 1) {
    fail(name, " must be an integer in [1, 2^31). Received: ", word);
  }
  return number;
}

// Whether there is an option of this name with a value, which is NULL where none was given.
bool take(Options& options, std::string_view name, const char* value) {
  const auto given = [&] {
    if (!value) fail(name, " must have a value. Received: none");
    return value;
  };
  if (name == "--n-best") options.n_best = number_of(given(), name);
  else if (name == "--threads") options.threads = number_of(given(), name);
  else if (name == "--weight-cache") options.weight_cache = given();
  else if (name == "--language") options.language = given();
  else return false;
  return true;
}

}  // namespace

Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i], name = word.substr(0, word.find('='));
    if (word == "--stream") options.streams = true;
    else if (word == "--text") options.is_whole = true;
    else if (word.substr(0, 1) != "-") {
      if (options.folder) fail("texts must come from standard input. Received: ", word);
      options.folder = words[i];
    } else {
      const bool has_value = name.size() < word.size();
      const char* value = has_value ? words[i] + name.size() + 1 : words[i + 1];
      if (!take(options, name, value)) {
        fail("an option must be one of those below. Received: ", word);
      }
      i += !has_value;
    }
  }
  if (!options.folder) fail("FOLDER must be given. Received: none");
  if ((options.n_best > 0) + options.streams + options.is_whole > 1) {
    fail("--n-best, --stream and --text must be given one at a time. Received: several");
  }
  if (*options.language && !options.is_whole) fail("--language goes with --text");
  return options;
}
