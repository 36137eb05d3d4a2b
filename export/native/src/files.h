// Files of an exported folder.
#pragma once

#include <cstddef>
#include <string>

namespace keras_transformer {

// Lets closed standard streams lead nowhere: the next file that is opened has the number of one,
// and would be read as standard input, or get what is written to standard output or error.
void open_standard_streams();

// What lies at a path, for an error where a folder of `export` was needed.
std::string received(const std::string& path);

// A file that is open for reading.
class File {
 public:
  explicit File(const std::string& path);  // fails if there is none
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  size_t size() const { return size_; }
  std::string content() const;
  std::string sha256() const;  // in hexadecimal
  void check(const std::string& sha256) const;  // fails unless the file has it

 private:
  template <class Use>
  void read(size_t block, Use use) const;

  std::string path_;
  int descriptor_;
  size_t size_ = 0;
};

}  // namespace keras_transformer
