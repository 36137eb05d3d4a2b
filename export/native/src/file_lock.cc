#include "file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "failure.h"

namespace keras_transformer {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestBuild{10};
constexpr std::chrono::milliseconds kPause{20};
constexpr const char* kWriting = ".writing.";
constexpr size_t kDigits = 8;  // of the name of a scratch folder: .1f00ba47.writing.NAME

std::string lock_path(const std::string& folder, const std::string& name) {
  return folder + "/." + name + ".lock";
}

std::string random_digits() {
  static const char* const digits = "0123456789abcdef";
  std::random_device random;
  std::string made;
  for (size_t i = 0; i < kDigits; ++i) made += digits[random() % 16];
  return made;
}

}  // namespace

FileLock::FileLock(const std::string& folder, const std::string& name, Wait wait)
    : path_(lock_path(folder, name)) {
  acquire(wait);
  if (is_held_) sweep(folder, name);
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  // Removed while it is held: whoever opens the old file next sees that it has lost its name.
  if (is_held_ && is_open_file()) unlink(path_.c_str());
  if (is_held_) flock(descriptor_, LOCK_UN);  // a forked child may have the descriptor, too
  close(descriptor_);
}

void FileLock::acquire(Wait wait) {
  const auto end = Clock::now() + kLongestBuild;
  for (;;) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) {
      if (wait == kNot) return;
      fail("`weight_cache` must be a folder that can be written. Received: ", path_, ": ",
           std::strerror(errno));
    }
    const int status = flock(descriptor_, LOCK_EX | LOCK_NB);
    if (status == 0 && is_open_file()) {
      is_held_ = true;
      return;
    }
    if (status && errno != EWOULDBLOCK && errno != EINTR) return;  // it cannot lock
    close(descriptor_);
    descriptor_ = -1;
    if (wait == kNot) return;
    if (Clock::now() >= end) {
      fail("one process at a time may make packed weights. Received: ", path_,
           ", which another has held for ten minutes");
    }
    std::this_thread::sleep_for(kPause);
  }
}

bool FileLock::is_open_file() const {
  struct stat named, opened;
  return !stat(path_.c_str(), &named) && !fstat(descriptor_, &opened) &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

bool FileLock::is_there(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  return fs::exists(lock_path(folder, name), ignored);
}

// Nobody else writes while this is held: what has a name of something unfinished is of the dead.
void FileLock::sweep(const std::string& folder, const std::string& name) const {
  std::error_code ignored;
  const std::string end = kWriting + name;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string found = entry.path().filename().string();
    const bool is_left = found.size() == 1 + kDigits + end.size() && found[0] == '.' &&
                         found.compare(1 + kDigits, end.npos, end) == 0;
    if (is_left) fs::remove_all(entry.path(), ignored);
  }
}

ScratchFolder::ScratchFolder(const std::string& folder, const std::string& name)
    : path_(folder + "/." + random_digits() + kWriting + name) {
  if (mkdir(path_.c_str(), 0777)) {
    fail("`weight_cache` must be a folder that can be written. Received: ", folder, ": ",
         std::strerror(errno));
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace keras_transformer
