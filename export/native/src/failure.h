// Errors inside the library. At its border they become a result and a text: see c_interface.cc.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace keras_transformer {

// What is told to the caller: the rule, and what was received in its place.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Failure(text.str());
}

}  // namespace keras_transformer
