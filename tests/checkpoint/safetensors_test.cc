// safetensors files of the reference library, read and written again byte for byte.
#include <sys/mount.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/base.h"
#include "base/temp_folder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/raw_file.h"

namespace {

using rr::DType;
using rr::checkpoint::SafetensorsReader;
using rr::checkpoint::TensorInfo;
using rr::checkpoint::TensorToWrite;
using rr::checkpoint::write_safetensors;
using rr::test::read_file;
using rr::test::TempFolder;
using rr::test::write_file;
using Shape = std::vector<std::int64_t>;

const std::string kData = RR_TEST_DATA "/checkpoint/";

template <class T>
std::vector<T> values(const TensorInfo& tensor) {
  std::vector<T> list(static_cast<std::size_t>(tensor.bytes) / sizeof(T));
  if (!list.empty()) std::memcpy(list.data(), tensor.data, list.size() * sizeof(T));
  return list;
}

std::vector<TensorToWrite> all_tensors(const SafetensorsReader& reader) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : reader.tensors()) {
    list.push_back({name, tensor.dtype, tensor.shape, tensor.data});
  }
  return list;
}

TEST_CASE("every dtype, a scalar, an empty tensor and an odd name of safetensors 0.8.0 are read") {
  const SafetensorsReader reader(kData + "mixed.safetensors");
  CHECK(reader.tensors().size() == 13);
  CHECK(reader.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(reader.at("z.f32").dtype == DType::f32);
  CHECK(reader.at("z.f32").shape == Shape{2, 3});
  CHECK(values<float>(reader.at("z.f32")) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(reader.at("a.bool").dtype == DType::boolean);
  CHECK(values<std::uint8_t>(reader.at("a.bool")) == std::vector<std::uint8_t>{1, 0, 1});
  CHECK(reader.at("m.bf16").dtype == DType::bf16);
  CHECK(values<std::uint16_t>(reader.at("m.bf16"))[3] == rr::bf16_from_float(4.0F));
  CHECK(values<std::int8_t>(reader.at("b.i8"))[0] == -2);
  CHECK(values<std::uint8_t>(reader.at("a.u8"))[0] == 255);
  CHECK(reader.at("k.i64").shape.empty());
  CHECK(values<std::int64_t>(reader.at("k.i64")) == std::vector{std::int64_t{1} << 40});
  CHECK(values<double>(reader.at("k.f64")) == std::vector{0.1});
  CHECK(values<std::int32_t>(reader.at("i.i32")) == std::vector{-1, 7});
  CHECK(values<std::uint16_t>(reader.at("h.f16"))[0] == 0x3e00);
  CHECK(values<std::int16_t>(reader.at("s.i16"))[0] == -1);
  CHECK(values<std::uint16_t>(reader.at("s.u16"))[0] == 65535);
  CHECK(reader.at("empty.f32").shape == Shape{0, 4});
  CHECK(reader.at("empty.f32").bytes == 0);
  CHECK(values<float>(reader.at("name with \"quotes\" / slash \u00e9"))[0] == 2.5F);
}

TEST_CASE("a sharded Hugging Face model is read from its folder and from its index") {
  const SafetensorsReader reader(kData + "sharded");
  std::int64_t bytes = 0;
  for (const auto& [name, tensor] : reader.tensors()) bytes += tensor.bytes;
  CHECK(bytes == 107136);  // total_size of the index
  CHECK(reader.tensors().size() == 20);
  CHECK(reader.at("model.embed_tokens.weight").shape == Shape{64, 32});
  CHECK(reader.at("model.layers.1.mlp.gate_proj.weight").dtype == DType::f32);
  const SafetensorsReader by_index(kData + "sharded/model.safetensors.index.json");
  CHECK(by_index.tensors().size() == reader.tensors().size());
}

TEST_CASE("a folder's single file is read before its index, as Hugging Face does") {
  const TempFolder folder;
  std::filesystem::copy_file(kData + "mixed.safetensors", folder.path("model.safetensors"));
  write_file(folder.path("model.safetensors.index.json"), "broken");
  CHECK(SafetensorsReader(folder.path()).tensors().size() == 13);
}

TEST_CASE("a reader can be moved and its tensors stay") {
  SafetensorsReader first(kData + "mixed.safetensors");
  const std::byte* data = first.at("z.f32").data;
  const SafetensorsReader second = std::move(first);
  CHECK(second.at("z.f32").data == data);
}

TEST_CASE("an unknown tensor is refused with the nearest names") {
  const SafetensorsReader reader(kData + "sharded");
  CHECK_THROWS_WITH(reader.at("model.embed_token.weight"),
                    Catch::Contains("has no tensor \"model.embed_token.weight\"") &&
                        Catch::Contains("model.embed_tokens.weight"));
  CHECK_THROWS_AS(reader.at("x"), rr::UsageError);
}

TEST_CASE("what is read can be written again to the same bytes as safetensors 0.8.0 wrote") {
  const TempFolder folder;
  for (const std::string name : {"mixed.safetensors", "sharded/model-00001-of-00006.safetensors",
                                 "sharded/model-00006-of-00006.safetensors"}) {
    const SafetensorsReader reader(kData + name);
    write_safetensors(folder.path("again"), all_tensors(reader), reader.metadata());
    CHECK(read_file(folder.path("again")) == read_file(kData + name));
  }
}

TEST_CASE("tensors of a file that is not padded are aligned all the same") {
  const TempFolder folder;
  const std::string header = R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}})";
  for (int pad = 0; pad < 8; ++pad) {
    write_file(folder.path("a"), rr::test::raw_file(header + std::string(pad, ' '), 16));
    const SafetensorsReader reader(folder.path("a"));
    const TensorInfo& tensor = reader.at("a");
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.data) % 8 == 0);
    CHECK(values<std::uint64_t>(tensor)[1] == 0x0101010101010101ULL);
  }
}

TEST_CASE("every bit of special values survives") {
  const TempFolder folder;
  const std::vector<std::uint32_t> bits = {0x7fc01234, 0xff800000, 0x00000001, 0x80000000};
  write_safetensors(folder.path("a"), {{"x", DType::f32, {4}, bits.data()}}, {});
  CHECK(values<std::uint32_t>(SafetensorsReader(folder.path("a")).at("x")) == bits);
}

TEST_CASE("a file without tensors and metadata is written and read") {
  const TempFolder folder;
  write_safetensors(folder.path("a"), {}, {});
  CHECK(read_file(folder.path("a")).substr(8) == "{}      ");
  CHECK(SafetensorsReader(folder.path("a")).tensors().empty());
}

TEST_CASE("names that a file cannot hold are refused and nothing is written") {
  const TempFolder folder;
  const float one = 1;
  const auto write = [&](std::vector<TensorToWrite> tensors) {
    write_safetensors(folder.path("a"), tensors, {});
  };
  const TensorToWrite good{"x", DType::f32, {1}, &one};
  CHECK_THROWS_AS(write({good, good}), rr::Error);
  CHECK_THROWS_AS(write({{"__metadata__", DType::f32, {1}, &one}}), rr::Error);
  CHECK_THROWS_AS(write({{"\xff", DType::f32, {1}, &one}}), rr::Error);
  CHECK_THROWS_AS(write({{"x", DType::f32, {-1}, &one}}), rr::Error);
  CHECK_THROWS_AS(write({{"x", DType::f32, {1LL << 62, 4}, &one}}), rr::Error);
  CHECK(folder.num_files() == 0);
}

TEST_CASE("B122: a full disk fails a save with the path and keeps the earlier file") {
  const TempFolder folder;
  if (!rr::test::mount_small_disk(folder.path())) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  const std::vector<float> small(1000, 1.0F), large(100'000, 2.0F);
  write_safetensors(folder.path("a"), {{"x", DType::f32, {1000}, small.data()}}, {});
  CHECK_THROWS_WITH(
      write_safetensors(folder.path("a"), {{"x", DType::f32, {100'000}, large.data()}}, {}),
      Catch::Contains(folder.path("a")) && Catch::Contains("No space left"));
  CHECK(values<float>(SafetensorsReader(folder.path("a")).at("x")) == small);
  CHECK(folder.num_files() == 1);
  umount(folder.path().c_str());
}

TEST_CASE("a folder that is not there fails a save with the path") {
  CHECK_THROWS_WITH(write_safetensors("/no/such/folder/a", {}, {}),
                    Catch::Contains("/no/such/folder/a"));
}

}  // namespace
