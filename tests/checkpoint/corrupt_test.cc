// Damaged safetensors files are refused, each with a message that says what is wrong.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/base.h"
#include "base/temp_folder.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/raw_file.h"

namespace {

using rr::checkpoint::SafetensorsReader;
using rr::test::raw_file;
using rr::test::raw_length;
using rr::test::read_file;
using rr::test::TempFolder;
using rr::test::write_file;

// The refusal's text, or "" when the file is accepted.
std::string refusal(const std::string& path) {
  try {
    const SafetensorsReader reader(path);
    return "";
  } catch (const rr::UsageError& error) {
    return error.what();
  }
}

struct Bad {
  const char* claim;
  std::string bytes;
  const char* message;
};

const std::string kGood = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

// A file of 8 data bytes whose one tensor has these fields.
std::string entry(const std::string& fields) { return raw_file("{\"a\":{" + fields + "}}", 8); }

// Lengths and JSON text.
std::vector<Bad> bad_texts() {
  return {
      {"empty", "", "has 0 bytes"},
      {"shorter than its length field", "\1\0\0", "truncated"},
      {"nothing but a length", raw_length(54), "has 8 bytes, its header alone needs 62: truncated"},
      {"ends within its header", raw_file(kGood, 0).substr(0, 40), "truncated"},
      {"has no tensor data", raw_file(kGood, 0),
       "holds 0 bytes of tensor data, its header names 8"},
      {"lacks one byte", raw_file(kGood, 7),
       "holds 7 bytes of tensor data, its header names 8: trun"},
      {"has one byte more", raw_file(kGood, 9), "bytes left over"},
      {"header just over the limit", raw_length(100'000'001) + "{", "the format allows 100000000"},
      {"length of 2^63", raw_length(std::uint64_t{1} << 63) + "{}",
       "claims a header of 92233720368"},
      {"length of 2^64 - 1", raw_length(~std::uint64_t{0}) + "{}", "claims a header"},
      {"no header", raw_length(0) + "{}", "does not start with '{'"},
      {"header begins with a space", raw_file(" " + kGood, 8), "does not start with '{'"},
      {"header is a list", raw_file("[]", 0), "does not start with '{'"},
      {"JSON is cut", raw_file(R"({"a":{"dtype":"F32",)", 8), "valid JSON"},
      {"JSON is followed by more", raw_file(kGood + "x", 8), "valid JSON"},
      {"text is not UTF-8", raw_file("{\"\xff\":{}}", 8), "valid JSON"},
      {"zero bytes behind the header", raw_file(kGood + std::string(2, '\0'), 8), "valid JSON"},
      {"a name twice",
       raw_file(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                0),
       "has the key \"a\" twice"},
      {"a field twice", entry(R"("dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8])"),
       "has the key \"dtype\" twice"},
      {"the metadata twice", raw_file(R"({"__metadata__":{},"__metadata__":{}})", 0),
       "has the key \"__metadata__\" twice"},
  };
}

// One entry at a time.
std::vector<Bad> bad_entries() {
  return {
      {"metadata that is no text", raw_file(R"({"__metadata__":{"n":1}})", 0),
       "__metadata__ has a va"},
      {"metadata that is a list", raw_file(R"({"__metadata__":[]})", 0),
       "__metadata__ is not an obj"},
      {"a tensor that is a number", raw_file(R"({"a":1})", 0), "tensor \"a\" is not an object"},
      {"no dtype", entry(R"("shape":[2],"data_offsets":[0,8])"), "tensor \"a\" has no dtype"},
      {"a dtype nobody knows", entry(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"),
       "has the dtype \"F33\", which is not supported"},
      {"a dtype we do not have", entry(R"("dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8])"),
       "has the dtype \"F8_E4M3\""},
      {"a dtype in small letters", entry(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"),
       "has the dtype \"f32\""},
      {"no shape", entry(R"("dtype":"F32","data_offsets":[0,8])"), "has no shape"},
      {"a negative extent", entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
       "has no sha"},
      {"a fractional extent", entry(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"),
       "has no shape"},
      {"an extent of 2^63",
       entry(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8])"), "has no shape"},
      {"an extent of 1e400", entry(R"("dtype":"U8","shape":[1e400],"data_offsets":[0,8])"),
       "number"},
      {"a product past 2^64",
       entry(R"("dtype":"U8","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"),
       "passes 2^63"},
      {"a product that wraps to the right size",
       entry(R"("dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8])"), "passes 2^63"},
      {"no offsets", entry(R"("dtype":"F32","shape":[2])"), "has no data_offsets"},
      {"one offset", entry(R"("dtype":"F32","shape":[2],"data_offsets":[0])"),
       "has no data_offsets"},
      {"offsets in the wrong order", entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"),
       "data_offsets are [8, 0]"},
      {"fewer bytes than the shape needs",
       entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
       "needs 12 bytes for shape [3] in F32"},
  };
}

// Where the tensors lie.
std::vector<Bad> bad_places() {
  return {
      {"offsets past the end", entry(R"("dtype":"F32","shape":[4],"data_offsets":[0,16])"),
       "holds 8 bytes of tensor data, its header names 16: truncated"},
      {"a hole at the start", entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"),
       "tensor \"a\" begins at byte 4 of the data, the one before ends at 0: a hole"},
      {"a hole within",
       raw_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                8),
       "tensor \"b\" begins at byte 4 of the data, the one before ends at 2: a hole"},
      {"an overlap",
       raw_file(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                8),
       "tensor \"b\" begins at byte 4 of the data, the one before ends at 5: an overlap"},
      {"two tensors at one place",
       raw_file(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                8),
       "an overlap"},
      {"data without a tensor", raw_file("{}", 8), "its header names 0: bytes left over"},
  };
}

TEST_CASE("every damaged file is refused with its path and what is wrong") {
  const TempFolder folder;
  const std::string path = folder.path("bad.safetensors");
  for (const std::vector<Bad>& table : {bad_texts(), bad_entries(), bad_places()}) {
    for (const Bad& bad : table) {
      INFO(bad.claim);
      write_file(path, bad.bytes);
      CHECK_THAT(refusal(path),
                 Catch::StartsWith("error: " + path + ": ") && Catch::Contains(bad.message));
    }
  }
}

TEST_CASE("B123: a real file cut at any byte is refused") {
  const TempFolder folder;
  const std::string whole = read_file(RR_TEST_DATA "/checkpoint/mixed.safetensors");
  const std::string path = folder.path("cut.safetensors");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_file(path, whole.substr(0, length));
    INFO(length);
    REQUIRE_THAT(refusal(path), Catch::Contains(path));
  }
  write_file(path, whole);
  CHECK(refusal(path).empty());
}

TEST_CASE("all bad tensors of a file are reported at once") {
  const TempFolder folder;
  const std::string path = folder.path("bad.safetensors");
  write_file(path,
             raw_file(R"({"a":{},"b":7,"c":{"dtype":"X","shape":[],"data_offsets":[0,1]}})", 1));
  const std::string text = refusal(path);
  for (const char* tensor : {"\"a\"", "\"b\"", "\"c\""}) CHECK_THAT(text, Catch::Contains(tensor));
}

TEST_CASE("missing files, folders without a model and folders in place of files are refused") {
  const TempFolder folder;
  CHECK_THAT(refusal(folder.path("none.safetensors")), Catch::Contains("No such file"));
  CHECK_THAT(refusal(folder.path()), Catch::Contains("is a folder without model.safetensors"));
  std::filesystem::create_directory(folder.path("model.safetensors"));
  CHECK_THAT(refusal(folder.path()), Catch::Contains("not a regular file"));
}

// A folder with two shards, a and b, and the given index.
std::string sharded(const TempFolder& folder, const std::string& index) {
  for (const std::string name : {"a", "b"}) {
    const std::string entry = R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    write_file(folder.path(name + ".safetensors"), raw_file("{\"" + name + entry, 1));
  }
  write_file(folder.path("model.safetensors.index.json"), index);
  return folder.path();
}

TEST_CASE("an index that does not fit its shards is refused, naming tensor and shard") {
  const TempFolder folder;
  const auto refused = [&](const std::string& index) { return refusal(sharded(folder, index)); };
  const std::string a = R"("a":"a.safetensors")";
  CHECK(refused("{\"weight_map\":{" + a + R"(,"b":"b.safetensors"}})").empty());
  CHECK_THAT(refused("{\"weight_map\":{" + a + R"(,"b":"b.safetensors","c":"b.safetensors"}})"),
             Catch::Contains("names tensor \"c\" in b.safetensors, which lacks it"));
  CHECK_THAT(refused("{\"weight_map\":{" + a + R"(,"c":"b.safetensors"}})"),
             Catch::Contains("does not name tensor \"b\" of b.safetensors"));
  CHECK_THAT(refused("{\"weight_map\":{" + a + R"(,"b":"c.safetensors"}})"),
             Catch::Contains("c.safetensors: cannot be read: No such file"));
  CHECK_THAT(refused("{\"weight_map\":{" + a + R"(,"b":"../b.safetensors"}})"),
             Catch::Contains("tensor \"b\" lies in \"../b.safetensors\", which is no file name"));
  CHECK_THAT(refused("{\"weight_map\":{" + a + R"(,"b":2}})"), Catch::Contains("no file name"));
  CHECK_THAT(refused("{\"weight_map\":{" + a + "," + a + "}}"), Catch::Contains("\"a\" twice"));
  CHECK_THAT(refused("{}"), Catch::Contains("has no weight_map"));
  CHECK_THAT(refused("[]"), Catch::Contains("has no weight_map"));
  CHECK_THAT(refused(""), Catch::Contains("valid JSON"));
}

TEST_CASE("a tensor that two shards hold is refused") {
  const TempFolder folder;
  sharded(folder, R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  std::filesystem::copy_file(folder.path("a.safetensors"), folder.path("b.safetensors"),
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(refusal(folder.path()), Catch::Contains("holds tensor \"a\", as another shard does"));
}

}  // namespace
