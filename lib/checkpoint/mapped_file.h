// A file mapped for reading; a private header of checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rr::checkpoint {

class MappedFile {
 public:
  // Throws UsageError with the path and the reason. An empty file has no bytes and data() is null.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  const std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace rr::checkpoint
