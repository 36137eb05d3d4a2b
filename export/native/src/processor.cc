#include "processor.h"

#include <sys/utsname.h>

#include <cstdint>
#include <fstream>

#include "failure.h"
#include "litert.h"
#include "sha256.h"

#ifdef __linux__  // Android too
#include <link.h>
#endif

namespace keras_transformer {
namespace {

constexpr size_t kProcessorDigits = 8;
constexpr size_t kRuntimeDigits = 16;

#ifdef __linux__
struct Search {
  uintptr_t address;  // within the library
  Sha256 digest;
  bool is_found;
};

// Takes the sizes of a library's parts, its build id if it has one, and the table of the places of
// its functions: no two builds have the same.
int take_library(dl_phdr_info* library, size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  const auto* end = library->dlpi_phdr + library->dlpi_phnum;
  bool is_wanted = false;
  for (const auto* part = library->dlpi_phdr; part != end; ++part) {
    const uintptr_t start = library->dlpi_addr + part->p_vaddr;
    is_wanted |= part->p_type == PT_LOAD && search.address - start < part->p_memsz;
  }
  if (!is_wanted) return 0;
  for (const auto* part = library->dlpi_phdr; part != end; ++part) {
    search.digest.update(&part->p_memsz, sizeof part->p_memsz);
    if (part->p_type != PT_NOTE && part->p_type != PT_GNU_EH_FRAME) continue;
    search.digest.update(reinterpret_cast<const void*>(library->dlpi_addr + part->p_vaddr),
                         part->p_memsz);
  }
  search.is_found = true;
  return 1;
}
#endif

}  // namespace

std::string processor_name() {
  utsname system;
  const std::string machine = uname(&system) ? "unknown" : system.machine;
  std::ifstream file("/proc/cpuinfo");
  Sha256 digest;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) && line.rfind("Features", 0)) continue;
    line += '\n';
    digest.update(line.data(), line.size());
    break;
  }
  return machine + "-" + digest.hexadecimal().substr(0, kProcessorDigits);
}

std::string runtime_name() {
#ifdef __linux__
  Search search = {reinterpret_cast<uintptr_t>(&LiteRtCreateEnvironment), {}, false};
  dl_iterate_phdr(take_library, &search);
  if (search.is_found) return search.digest.hexadecimal().substr(0, kRuntimeDigits);
#endif
  fail("`weight_cache` must be given on Linux or Android only, with LiteRT as a shared library. ",
       "Received: another system");
}

}  // namespace keras_transformer
