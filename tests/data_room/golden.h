// Files of tests/data/megatron_dataset and small helpers that several tests of this room use.
#pragma once

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/base.h"
#include "plan/plan.h"

namespace golden {

inline std::string path(const std::string& name) {
  return std::string(RR_TEST_DATA) + "/megatron_dataset/" + name;
}

inline std::string read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  INFO(file);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& file, const std::string& bytes) {
  std::ofstream out(file, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

inline nlohmann::json json(const std::string& name) {
  return nlohmann::json::parse(read_file(path(name)));
}

template <class T>
void append_as(const std::string& bytes, std::size_t begin, std::vector<std::int64_t>& values) {
  for (std::size_t at = begin; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    values.push_back(static_cast<std::int64_t>(value));
  }
}

// Every element of an .npy file (version 1, little-endian integers), flattened.
inline std::vector<std::int64_t> npy(const std::string& name) {
  const std::string bytes = read_file(path(name));
  REQUIRE(bytes.substr(1, 5) == "NUMPY");
  std::uint16_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 2);
  const std::size_t begin = 10U + header;
  const std::string type = bytes.substr(bytes.find("'descr': '") + 10, 3);
  std::vector<std::int64_t> values;
  if (type == "<i2") append_as<std::int16_t>(bytes, begin, values);
  if (type == "<i4") append_as<std::int32_t>(bytes, begin, values);
  if (type == "<i8") append_as<std::int64_t>(bytes, begin, values);
  if (type == "<u4") append_as<std::uint32_t>(bytes, begin, values);
  if (type == "|u1") append_as<std::uint8_t>(bytes, begin, values);
  REQUIRE_FALSE(values.empty());
  return values;
}

inline bool exists(const std::string& name) { return std::filesystem::exists(path(name)); }

template <class Container>
std::vector<std::int64_t> widened(const Container& values) {
  return {values.begin(), values.end()};
}

template <class T>
std::vector<T> first(const std::vector<T>& values, std::size_t count) {
  return {values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count)};
}

// A folder that goes with its test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "rr_data_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The text of the UsageError that `work` throws; "" when it throws none.
template <class Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const rr::UsageError& error) {
    return error.what();
  }
  return "";
}

// A plan for one corpus, all of it for training.
inline rr::plan::DataPlan plan_for(const std::string& prefix, std::int64_t seq_length,
                                   std::int64_t samples, std::int64_t vocab = 1000) {
  rr::plan::DataPlan plan;
  plan.mock = false;
  plan.prefixes = {prefix};
  plan.seq_length = seq_length;
  plan.samples = {samples, 0, 0};
  plan.vocab = vocab;
  return plan;
}

}  // namespace golden
