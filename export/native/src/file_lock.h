// One process at a time makes a file: the names and rules of keras_transformer_runner/atomic.py.
#pragma once

#include <string>

namespace keras_transformer {

// Holds `folder`/`name`, which need not exist, while it lives. The system lets go of a lock when
// its process dies, so what the dead have left is removed. Where a file system cannot lock, nothing
// is held or removed: whoever makes the file renames it when it is whole.
class FileLock {
 public:
  enum Wait { kLong, kNot };

  // `kLong` waits for ten minutes, and fails then.
  FileLock(const std::string& folder, const std::string& name, Wait wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Whether the file of a lock is there: held now, or left by the dead.
  static bool is_there(const std::string& folder, const std::string& name);

 private:
  void acquire(Wait wait);
  bool is_open_file() const;
  void sweep(const std::string& folder, const std::string& name) const;

  std::string path_;
  int descriptor_ = -1;
  bool is_held_ = false;
};

// A folder beside a file, for the parts of it, that is removed at the end.
class ScratchFolder {
 public:
  ScratchFolder(const std::string& folder, const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace keras_transformer
