// Maps files and hands out their tensors in place; a tensor that a foreign writer left unaligned is
// copied, so that `data` can always be read as its own type.
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <set>

#include "base/files.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors_header.h"

namespace rr::checkpoint {

struct SafetensorsReader::State {
  std::string path;
  std::vector<MappedFile> files;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> metadata;

  const std::byte* aligned(const std::byte* data, std::int64_t bytes, DType type) {
    const auto misplaced = reinterpret_cast<std::uintptr_t>(data) % size_of(type);
    if (misplaced == 0 || bytes == 0) return data;
    const auto size = static_cast<std::size_t>(bytes);
    copies.push_back(std::make_unique<std::byte[]>(size));
    std::memcpy(copies.back().get(), data, size);
    return copies.back().get();
  }

  // Returns the names of the file's tensors.
  std::set<std::string> add_file(const std::string& file_path) {
    MappedFile& file = files.emplace_back(file_path);
    Header header = read_header(file_path, file.data(), file.size());
    std::vector<Problem> problems;
    std::set<std::string> names;
    for (auto& [name, entry] : header.entries) {
      const std::int64_t bytes = entry.end - entry.begin;
      const std::byte* data = aligned(file.data() + entry.begin, bytes, entry.dtype);
      TensorInfo info{entry.dtype, std::move(entry.shape), data, bytes};
      if (!tensors.emplace(name, std::move(info)).second) {
        problems.push_back({Severity::error, file_path, "",
                            fmt::format("holds tensor \"{}\", as another shard does.", name),
                            "Remove one of the two."});
      }
      names.insert(name);
    }
    if (!problems.empty()) throw UsageError(std::move(problems));
    metadata.merge(header.metadata);
    return names;
  }

  void add_index(const std::string& index_path) {
    const MappedFile index(index_path);
    const auto weight_map = read_index(index_path, {reinterpret_cast<const char*>(index.data()),
                                                    static_cast<std::size_t>(index.size())});
    std::map<std::string, std::set<std::string>> promised;  // by shard
    for (const auto& [name, shard] : weight_map) promised[shard].insert(name);
    const std::filesystem::path folder = std::filesystem::path(index_path).parent_path();
    std::vector<Problem> problems;
    for (const auto& [shard, names] : promised) {
      const std::set<std::string> there = add_file((folder / shard).string());
      for (const std::string& name : names) {
        if (there.count(name) != 0) continue;
        problems.push_back({Severity::error, index_path, "",
                            fmt::format("names tensor \"{}\" in {}, which lacks it.", name, shard),
                            "Copy the shards and their index again, together."});
      }
      for (const std::string& name : there) {
        if (names.count(name) != 0) continue;
        problems.push_back({Severity::error, index_path, "",
                            fmt::format("does not name tensor \"{}\" of {}.", name, shard),
                            "Copy the shards and their index again, together."});
      }
    }
    if (!problems.empty()) throw UsageError(std::move(problems));
  }
};

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// The file that a folder stands for; like Hugging Face, the single file wins.
std::string file_in(const std::string& path) {
  const std::filesystem::path folder(path);
  for (const char* name : {kSingle, kIndex}) {
    if (std::filesystem::exists(folder / name)) return (folder / name).string();
  }
  throw UsageError({Severity::error, path, "",
                    fmt::format("is a folder without {} and without {}.", kSingle, kIndex),
                    "Give the folder or the file of a safetensors model."});
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : state_(std::make_unique<State>()) {
  std::error_code ignored;  // what cannot be looked at is reported when it is opened
  const bool folder = std::filesystem::is_directory(path, ignored);
  state_->path = folder ? file_in(path) : path;
  if (state_->path.ends_with(".json")) {
    state_->add_index(state_->path);
  } else {
    state_->add_file(state_->path);
  }
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;

const std::map<std::string, TensorInfo>& SafetensorsReader::tensors() const {
  return state_->tensors;
}

const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return state_->metadata;
}

const TensorInfo& SafetensorsReader::at(const std::string& name) const {
  const auto found = state_->tensors.find(name);
  if (found != state_->tensors.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, info] : state_->tensors) names.push_back(known);
  const std::vector<std::string> near = nearest(name, names);
  const std::string remedy = near.empty() ? fmt::format("It has {} tensors.", names.size())
                                          : fmt::format("The nearest: {}.", join(near, ", "));
  throw UsageError(
      {Severity::error, state_->path, "", fmt::format("has no tensor \"{}\".", name), remedy});
}

}  // namespace rr::checkpoint
