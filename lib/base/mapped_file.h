// A file mapped read-only for as long as the object lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace rr {

class MappedFile {
 public:
  // Throws UsageError for a file that is missing, unreadable or no regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  const std::byte* data() const { return data_; }  // nullptr when the file is empty

  // The value at any byte, aligned or not. The range exists.
  template <class T>
  T load(std::int64_t at) const {
    T value;
    std::memcpy(&value, data_ + at, sizeof(T));
    return value;
  }

 private:
  std::string path_;
  std::int64_t size_ = 0;
  const std::byte* data_ = nullptr;
};

}  // namespace rr
