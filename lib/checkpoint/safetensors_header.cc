// Every rule of the format (ecosystem.md 2.1), each with its own message.
#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"

namespace rr::checkpoint {
namespace {

using nlohmann::json;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

Problem problem(const std::string& path, std::string what) {
  return {Severity::error, path, "", std::move(what),
          "The file is damaged or was not written completely; copy or convert it again."};
}

[[noreturn]] void refuse(const std::string& path, std::string what) {
  throw UsageError(problem(path, std::move(what)));
}

// The parser keeps the last of two equal keys; its callback sees both.
json parse_strict(const std::string& path, std::string_view text) {
  // A zero byte is no JSON; the parser would take it for the end and ignore what follows.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    refuse(path, fmt::format("does not hold valid JSON (byte {} of it).", zero + 1));
  }
  std::vector<std::set<std::string>> open_objects;
  std::string duplicate;
  const auto check = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) duplicate = key;
    }
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text.begin(), text.end(), check);
  } catch (const json::parse_error& error) {
    refuse(path, fmt::format("does not hold valid JSON (byte {} of it).", error.byte));
  } catch (const json::exception&) {
    refuse(path, "holds a number that no computer can hold.");
  }
  if (!duplicate.empty()) refuse(path, fmt::format("has the key \"{}\" twice.", duplicate));
  return parsed;
}

// The JSON text of the header, after the checks of its length and first byte.
std::string_view header_text(const std::string& path, const std::byte* data, std::int64_t bytes) {
  if (bytes < kLengthBytes) {
    refuse(path, fmt::format("has {} bytes; a safetensors file has at least 8: truncated.", bytes));
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<std::uint64_t>(data[i]);
  if (length > kMaxHeaderBytes) {
    refuse(path, fmt::format("claims a header of {} bytes; the format allows {}: damaged, or no "
                             "safetensors file.",
                             length, kMaxHeaderBytes));
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > bytes - kLengthBytes) {
    refuse(path, fmt::format("has {} bytes, its header alone needs {}: truncated.", bytes,
                             kLengthBytes + header_bytes));
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + kLengthBytes, length);
  if (text.empty() || text[0] != '{') refuse(path, "has a header that does not start with '{'.");
  return text;
}

// A whole number >= 0 that fits 63 bits.
std::optional<std::int64_t> size_value(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return static_cast<std::int64_t>(number);
}

std::optional<std::vector<std::int64_t>> size_list(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_array()) return std::nullopt;
  std::vector<std::int64_t> list;
  for (const json& value : *found) {
    const auto number = size_value(value);
    if (!number) return std::nullopt;
    list.push_back(*number);
  }
  return list;
}

// Fills `entry` (offsets relative to the tensor data); returns what is wrong, or "".
std::string read_entry(const json& object, HeaderEntry& entry) {
  if (!object.is_object()) return "is not an object.";
  const auto dtype = object.find("dtype");
  if (dtype == object.end() || !dtype->is_string()) return "has no dtype.";
  const auto known = dtype_of(dtype->get_ref<const std::string&>());
  if (!known) return fmt::format("has the dtype {}, which is not supported.", dtype->dump());
  const auto shape = size_list(object, "shape");
  if (!shape) return "has no shape of whole numbers >= 0.";
  const auto offsets = size_list(object, "data_offsets");
  if (!offsets || offsets->size() != 2) return "has no data_offsets of two whole numbers >= 0.";
  entry = {*known, *shape, (*offsets)[0], (*offsets)[1]};
  const auto needed = bytes_of(entry.shape, entry.dtype);
  if (!needed) {
    return fmt::format("has the shape [{}], whose size in bytes passes 2^63.",
                       fmt::join(entry.shape, ", "));
  }
  if (entry.begin > entry.end || entry.end - entry.begin != *needed) {
    return fmt::format("needs {} bytes for shape [{}] in {}, its data_offsets are [{}, {}].",
                       *needed, fmt::join(entry.shape, ", "), safetensors_name(entry.dtype),
                       entry.begin, entry.end);
  }
  return "";
}

std::string read_metadata(const json& object, std::map<std::string, std::string>& metadata) {
  if (!object.is_object()) return "is not an object.";
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) return fmt::format("has a value for \"{}\" that is no text.", key);
    metadata[key] = value.get<std::string>();
  }
  return "";
}

// The tensors must cover the data exactly: no hole, no overlap, nothing left.
std::vector<Problem> check_places(const std::string& path, const Header& header,
                                  std::int64_t data_bytes) {
  std::vector<std::pair<const std::string*, const HeaderEntry*>> sorted;
  for (const auto& [name, entry] : header.entries) sorted.emplace_back(&name, &entry);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::vector<Problem> problems;
  std::int64_t reached = 0;
  for (const auto& [name, entry] : sorted) {
    if (entry->begin != reached) {
      problems.push_back(problem(
          path, fmt::format("tensor \"{}\" begins at byte {} of the data, the one before ends at "
                            "{}: {}.",
                            *name, entry->begin, reached,
                            entry->begin > reached ? "a hole" : "an overlap")));
    }
    reached = std::max(reached, entry->end);
  }
  if (reached != data_bytes) {
    problems.push_back(problem(
        path, fmt::format("holds {} bytes of tensor data, its header names {}: {}.", data_bytes,
                          reached, data_bytes < reached ? "truncated" : "bytes left over")));
  }
  return problems;
}

}  // namespace

const char* safetensors_name(DType type) {
  switch (type) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f64:
      return "F64";
    case DType::f16:
      return "F16";
    case DType::i64:
      return "I64";
    case DType::i32:
      return "I32";
    case DType::i16:
      return "I16";
    case DType::i8:
      return "I8";
    case DType::u16:
      return "U16";
    case DType::u8:
      return "U8";
    case DType::boolean:
      return "BOOL";
  }
  return "?";
}

std::optional<DType> dtype_of(std::string_view name) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64, DType::f16, DType::i64, DType::i32,
                           DType::i16, DType::i8, DType::u16, DType::u8, DType::boolean}) {
    if (name == safetensors_name(type)) return type;
  }
  return std::nullopt;
}

std::optional<std::int64_t> bytes_of(const std::vector<std::int64_t>& shape, DType type) {
  std::int64_t bytes = size_of(type);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

Header read_header(const std::string& path, const std::byte* data, std::int64_t bytes) {
  const std::string_view text = header_text(path, data, bytes);
  const json parsed = parse_strict(path, text);
  Header header;
  std::vector<Problem> problems;
  for (const auto& [name, value] : parsed.items()) {
    const bool is_metadata = name == "__metadata__";
    const std::string wrong = is_metadata ? read_metadata(value, header.metadata)
                                          : read_entry(value, header.entries[name]);
    if (wrong.empty()) continue;
    const std::string subject = is_metadata ? name : fmt::format("tensor \"{}\"", name);
    problems.push_back(problem(path, subject + " " + wrong));
  }
  const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(text.size());
  if (problems.empty()) problems = check_places(path, header, bytes - data_begin);
  if (!problems.empty()) throw UsageError(std::move(problems));
  for (auto& [name, entry] : header.entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  return header;
}

std::map<std::string, std::string> read_index(const std::string& path, std::string_view text) {
  const json parsed = parse_strict(path, text);
  const auto found = parsed.is_object() ? parsed.find("weight_map") : parsed.end();
  if (found == parsed.end() || !found->is_object()) refuse(path, "has no weight_map.");
  std::map<std::string, std::string> shards;
  std::vector<Problem> problems;
  for (const auto& [name, file] : found->items()) {
    const std::string shard = file.is_string() ? file.get<std::string>() : "";
    if (shard.empty() || shard.find('/') != std::string::npos) {
      problems.push_back(problem(path, fmt::format("tensor \"{}\" lies in {}, which is no file "
                                                   "name.",
                                                   name, file.dump())));
    }
    shards[name] = shard;
  }
  if (!problems.empty()) throw UsageError(std::move(problems));
  return shards;
}

}  // namespace rr::checkpoint
