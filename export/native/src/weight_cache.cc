#include "weight_cache.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <utime.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "failure.h"
#include "file_lock.h"
#include "processor.h"
#include "record.h"

namespace keras_transformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".xnnpack";
constexpr const char* kChecksum = ".sha256";
constexpr uintmax_t kMostGrowth = 4;  // of weights that are packed: 8 bits that become float32
constexpr size_t kLeastPages = size_t{1} << 23;  // bytes of a file whose pages are given back

std::string checksum_in(const std::string& path) {
  const std::string text = File(path).content();
  return text.substr(0, text.find_last_not_of(" \n\r\t") + 1);
}

bool is_whole(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  try {
    return File(path).sha256() == checksum_in(path + kChecksum);
  } catch (const Failure&) {  // gone, or not ours to read
    return false;
  }
}

// XNNPACK ends the process on a full disk.
void check_space(const std::string& folder, const File& model) {
  std::error_code error;
  const uintmax_t free = fs::space(folder, error).available, needed = kMostGrowth * model.size();
  if (!error && free < needed) {
    fail("packed weights need ", needed, " bytes, ", free, " are free in ", folder);
  }
}

void replace(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str())) {
    fail("packed weights must be a file that can be replaced. Received: ", to, ": ",
         std::strerror(errno));
  }
}

void set_time(const std::string& path, const utimbuf* time) { utime(path.c_str(), time); }

bool has_time(const std::string& path, time_t time) {
  struct stat status;
  return !stat(path.c_str(), &status) && S_ISREG(status.st_mode) && status.st_mtime == time;
}

// Makes the file and its checksum: aside, then renamed over what is there.
void build(const std::string& folder, const std::string& name, const File& model,
           const LoadModel& load) {
  check_space(folder, model);
  const ScratchFolder scratch(folder, name);
  const std::string made = scratch.path() + "/" + name, target = folder + "/" + name;
  load(made);
  // XNNPACK goes on where it cannot write the file, or not all of it. One that is not whole it
  // would write again.
  const utimbuf long_ago = {};
  set_time(made, &long_ago);
  if (has_time(made, 0)) load(made);
  if (!has_time(made, 0)) fail("packed weights could not be written. Received: ", target);
  set_time(made, nullptr);
  std::ofstream(made + kChecksum) << File(made).sha256() << '\n';
  replace(made, target);
  replace(made + kChecksum, target + kChecksum);
}

void make_folder(const std::string& folder) {
  if (folder.empty() || folder.find_first_of("\n\r\"\\") != folder.npos) {
    fail("`weight_cache` must name a folder, without line breaks, quotation marks and backslashes. ",
         "Received: ", Json(folder).dump(-1, ' ', true, Json::error_handler_t::replace));
  }
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder, error)) {
    fail("`weight_cache` must be a folder that is there or can be made. Received: ", folder, ": ",
         error ? error.message() : "something else");
  }
}

}  // namespace

std::string packed_weights(const std::string& folder, const File& model,
                           const std::string& model_sha256, const LoadModel& load) {
  // Another name than the Python runner's: its runtime is another build.
  const std::string name = model_sha256 + "-" + runtime_name() + "-" + processor_name() + kSuffix;
  make_folder(folder);
  const std::string path = folder + "/" + name;
  if (is_whole(path)) {
    if (FileLock::is_there(folder, name)) FileLock(folder, name, FileLock::kNot);
    return path;
  }
  const FileLock lock(folder, name, FileLock::kLong);
  if (!is_whole(path)) build(folder, name, model, load);  // else made in the meantime
  return path;
}

MappedPages::MappedPages(const File& file) {
  if (file.size() < kLeastPages) return;
  std::error_code error;  // where a system has no such files, no range is known
  const std::string link = "/proc/self/fd/" + std::to_string(file.descriptor());
  const std::string name = fs::read_symlink(link, error).string();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; !error && std::getline(maps, line);) {
    const size_t place = line.find('/');
    if (place == line.npos || line.compare(place, line.npos, name)) continue;
    unsigned long start, end;
    char rights[5];
    const int fields = std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, rights);
    if (fields == 3 && !std::strchr(rights, 'w')) ranges_.push_back({start, end});
  }
}

void MappedPages::let_go() const {
  for (const Range& range : ranges_) {
    madvise(reinterpret_cast<void*>(range.start), range.end - range.start, MADV_DONTNEED);
  }
}

}  // namespace keras_transformer
