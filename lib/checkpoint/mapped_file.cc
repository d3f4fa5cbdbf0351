// mmap for reading.
#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/base.h"

namespace rr::checkpoint {

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  int error = 0;
  if (descriptor < 0 || fstat(descriptor, &status) != 0) {
    error = errno;
  } else if (S_ISDIR(status.st_mode)) {
    error = EISDIR;
  } else if (status.st_size > 0) {
    void* map = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE,
                     descriptor, 0);
    if (map == MAP_FAILED) {
      error = errno;
    } else {
      data_ = static_cast<const std::byte*>(map);
      bytes_ = status.st_size;
    }
  }
  if (descriptor >= 0) close(descriptor);
  if (error != 0) {
    throw UsageError({Severity::error, path, "",
                      fmt::format("cannot be read: {}.", std::strerror(error)),
                      "Check the path and its permissions."});
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(bytes_));
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

}  // namespace rr::checkpoint
