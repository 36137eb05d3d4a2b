#include "files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "failure.h"
#include "sha256.h"

namespace keras_transformer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 1 << 16;
constexpr const char* kSavedModel =
    "a SavedModel of `export`, which TF Serving and `evaluate --with savedmodel` run";
// What a folder is, by the file that tells: those of keras_transformer_runner/folders.py.
constexpr std::pair<const char*, const char*> kKinds[] = {
    {"experiment.toml", "a run folder of `train`"},
    {"saved_model.pb", kSavedModel},
    {"1/saved_model.pb", kSavedModel},
    {"prepared.json", "a corpus of `prepare`, which [data] source may name"}};

}  // namespace

void open_standard_streams() {
  int number;  // the lowest that is free, each time
  do number = open("/dev/null", O_RDWR);
  while (number >= 0 && number <= STDERR_FILENO);
  if (number > STDERR_FILENO) close(number);
}

std::string received(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return path + ", which does not exist";
  if (!fs::is_directory(path, ignored)) return path + ", which is a file";
  for (const auto& [file, kind] : kKinds) {
    if (fs::is_regular_file(path + "/" + file, ignored)) return path + ", which is " + kind;
  }
  return path;
}

// A pipe is no file, and `open` would wait for whoever writes to it.
File::File(const std::string& path)
    : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail(path, " must be a file. Received: ", std::strerror(errno));
  struct stat status;
  if (fstat(descriptor_, &status) || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    fail(path, " must be a file. Received: something else");
  }
  size_ = static_cast<size_t>(status.st_size);
}

File::~File() { close(descriptor_); }

template <class Use>
void File::read(size_t block, Use use) const {
  std::vector<char> bytes(block);
  off_t at = 0;
  for (;;) {
    const ssize_t count = pread(descriptor_, bytes.data(), block, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, " must be readable. Received: ", std::strerror(errno));
    if (count == 0) return;
    use(bytes.data(), static_cast<size_t>(count));
    at += count;
  }
}

std::string File::content() const {
  std::string all;
  all.reserve(size_);
  read(kBlock, [&](const char* bytes, size_t count) { all.append(bytes, count); });
  return all;
}

std::string File::sha256() const {
#ifdef POSIX_FADV_RANDOM
  // Linux keeps what it has read ahead in blocks of up to 2 MB, and whoever maps the file later has
  // all of a block in memory where a page of it is used.
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
#endif
  Sha256 digest;
  read(kBlock, [&](const char* bytes, size_t count) { digest.update(bytes, count); });
#ifdef POSIX_FADV_NORMAL
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_NORMAL);
#endif
  return digest.hexadecimal();
}

void File::check(const std::string& sha256) const {
  const std::string received = this->sha256();
  if (received != sha256) {
    fail(path_, " must be the file that metadata.json was written for: it is damaged or belongs to ",
         "another folder. Received: sha256 ", received, ", expected ", sha256.substr(0, 100));
  }
}

}  // namespace keras_transformer
