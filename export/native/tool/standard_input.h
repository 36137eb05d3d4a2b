// Standard input as keras_transformer_runner/lines.py reads it, but for gzip, which is refused.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

// A byte order mark at the start is dropped. What is no UTF-8 is a failure.
class StandardInput {
 public:
  StandardInput() = default;
  ~StandardInput();
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

  // The next line without its end; none behind the last.
  std::optional<std::string> line();
  // All that is there, with its line ends.
  std::string text();
  // Of the last line, from 1; 0 before the first.
  size_t number() const { return number_; }

 private:
  std::optional<std::string> raw_line();

  char* buffer_ = nullptr;
  size_t size_ = 0, number_ = 0;
};
