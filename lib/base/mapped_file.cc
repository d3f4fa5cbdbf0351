// Read-only memory maps of regular files.
#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/base.h"

namespace rr {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw UsageError(
      {Severity::error, path, "", fmt::format("cannot be read: {}.", why), "Check the path."});
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse(path, std::strerror(errno));
  struct stat status;
  const bool known = ::fstat(file, &status) == 0;
  int failure = errno;
  if (known && S_ISREG(status.st_mode)) {
    failure = 0;
    size_ = status.st_size;
    if (size_ > 0) {
      void* map = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_PRIVATE, file, 0);
      failure = map == MAP_FAILED ? errno : 0;
      if (failure == 0) data_ = static_cast<const std::byte*>(map);
    }
  }
  ::close(file);
  if (known && !S_ISREG(status.st_mode)) refuse(path, "it is not a regular file");
  if (failure != 0) refuse(path, std::strerror(failure));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      size_(std::exchange(other.size_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

}  // namespace rr
