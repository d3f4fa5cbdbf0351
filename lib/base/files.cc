// POSIX files, because the standard streams hide errno and cannot sync.
#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/base.h"

namespace rr {

NewFile::NewFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp.{}", path_, getpid())) {
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("create");
}

NewFile::~NewFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void NewFile::write(const void* data, std::int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    // Linux writes at most 2 GiB - 4 KiB at once.
    const std::int64_t piece = std::min<std::int64_t>(bytes, std::int64_t{1} << 30);
    const ssize_t written = ::write(descriptor_, at, static_cast<std::size_t>(piece));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    at += written;
    bytes -= written;
  }
}

void NewFile::publish() {
  if (fsync(descriptor_) != 0) fail("sync");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (close(descriptor) != 0) fail("close");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  temporary_.clear();
  const auto slash = path_.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const int folder_descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) return;  // a folder that may be written but not read cannot be synced
  fsync(folder_descriptor);           // some network file systems refuse this; the file is complete
  close(folder_descriptor);
}

void NewFile::fail(const char* action) const {
  throw Error(fmt::format("cannot {} {}: {}", action, path_, std::strerror(errno)));
}

}  // namespace rr
