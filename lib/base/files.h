// Whole new files: complete under their name, or not there at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rr {

// Writes to a temporary file beside `path`; publish() makes it the file at `path`. Without
// publish() the temporary is removed and whatever was at `path` stays. Every function throws Error
// with the path and the system's reason (disk full, no such folder, not permitted).
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::int64_t bytes);
  void write(std::string_view text) { write(text.data(), static_cast<std::int64_t>(text.size())); }
  // Syncs the file, renames it and syncs its folder, so that it survives a power cut. Call once.
  void publish();

 private:
  [[noreturn]] void fail(const char* action) const;

  std::string path_;
  std::string temporary_;  // empty once published
  int descriptor_ = -1;
};

}  // namespace rr
