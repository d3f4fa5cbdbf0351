// Writes the bytes that the reference library writes: tensors sorted by dtype and name, header
// padded with spaces to a multiple of 8, so every tensor is aligned.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_header.h"

namespace rr::checkpoint {
namespace {

// Higher ranks come first; widths never grow, which keeps every tensor aligned to its element.
int rank_of(DType type) {
  switch (type) {
    case DType::boolean:
      return 0;
    case DType::u8:
      return 1;
    case DType::i8:
      return 2;
    case DType::i16:
      return 3;
    case DType::u16:
      return 4;
    case DType::f16:
      return 5;
    case DType::bf16:
      return 6;
    case DType::i32:
      return 7;
    case DType::f32:
      return 8;
    case DType::f64:
      return 9;
    case DType::i64:
      return 10;
  }
  return 0;
}

std::int64_t checked_bytes(const TensorToWrite& tensor) {
  const auto bytes = bytes_of(tensor.shape, tensor.dtype);
  RR_CHECK(bytes.has_value(), tensor.name + " has a shape of negative or overflowing size");
  return *bytes;
}

// Built as text: an ordered JSON object would take quadratic time for the tensors of a large model.
std::string header_text(const std::vector<const TensorToWrite*>& sorted,
                        const std::map<std::string, std::string>& metadata) {
  using nlohmann::json;
  std::string text;
  if (!metadata.empty()) text = "\"__metadata__\":" + json(metadata).dump();
  std::int64_t offset = 0;
  std::set<std::string> names = {"__metadata__"};
  for (const TensorToWrite* tensor : sorted) {
    RR_CHECK(names.insert(tensor->name).second, tensor->name + " cannot be a name, or not twice");
    const std::int64_t end = offset + checked_bytes(*tensor);
    if (!text.empty()) text += ',';
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        json(tensor->name).dump(), safetensors_name(tensor->dtype),
                        fmt::join(tensor->shape, ","), offset, end);
    offset = end;
  }
  text = "{" + text + "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorToWrite*> sorted;
  for (const TensorToWrite& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return std::pair(-rank_of(a->dtype), a->name) < std::pair(-rank_of(b->dtype), b->name);
  });
  std::string header;
  try {
    header = header_text(sorted, metadata);
  } catch (const nlohmann::json::exception& error) {  // a name that is not UTF-8
    throw Error(fmt::format("cannot write {}: {}", path, error.what()));
  }
  const std::uint64_t length = header.size();  // the hosts we build for are little-endian
  NewFile file(path);
  file.write(&length, sizeof length);
  file.write(header);
  for (const TensorToWrite* tensor : sorted) file.write(tensor->data, checked_bytes(*tensor));
  file.publish();
}

}  // namespace rr::checkpoint
