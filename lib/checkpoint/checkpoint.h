// safetensors files: reading by memory map, writing whole files. Format: ecosystem.md 2.1.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/base.h"

namespace rr::checkpoint {

struct TensorInfo {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  // lives as long as the reader; aligned to the element
  std::int64_t bytes = 0;
};

// One file, or all shards of a model.safetensors.index.json, or a folder that holds either.
class SafetensorsReader {
 public:
  // Throws UsageError naming the file and the field: missing, truncated, holes, overlaps, sizes
  // that do not fit, duplicate names, an index that names what no shard has.
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;

  const std::map<std::string, TensorInfo>& tensors() const;
  // Throws UsageError naming the nearest when there is none.
  const TensorInfo& at(const std::string& name) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  const void* data = nullptr;
};
// Writes to `path` through a temporary file that is renamed when complete and synced. Throws Error
// (disk full, no permission) with the path; then nothing new exists at `path`.
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace rr::checkpoint
