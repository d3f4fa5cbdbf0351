// The JSON parts of safetensors: a file's header and a shard index, checked; a private header of
// checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/base.h"

namespace rr::checkpoint {

struct HeaderEntry {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  // bytes in the file
};

struct Header {
  std::map<std::string, HeaderEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Checks a whole file of `bytes` bytes at `data`. `path` is for messages. Throws UsageError with
// all problems of the first stage that has any: size, JSON text, entries, their places.
Header read_header(const std::string& path, const std::byte* data, std::int64_t bytes);

// The weight map of a model.safetensors.index.json: tensor name -> shard's file name. Throws
// UsageError: not JSON, no map of names, a shard that is not a plain file name.
std::map<std::string, std::string> read_index(const std::string& path, std::string_view text);

// "BF16" and back. Nothing for names outside DType.
const char* safetensors_name(DType type);
std::optional<DType> dtype_of(std::string_view name);

// Bytes of a tensor, or nothing when an extent is negative or the product passes 2^63 - 1.
std::optional<std::int64_t> bytes_of(const std::vector<std::int64_t>& shape, DType type);

}  // namespace rr::checkpoint
