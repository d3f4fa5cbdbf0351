// Event files against records that TensorBoard's own writer made (oracle: tensorboard 2.21.0).
#include <sys/mount.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/base.h"
#include "base/crc32c.h"
#include "base/temp_folder.h"
#include "report/event_record.h"
#include "report/report.h"

namespace {

using nlohmann::json;
using rr::report::scalar_record;
using rr::report::TensorBoard;
using rr::report::version_record;
using rr::test::read_file;
using rr::test::TempFolder;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

double value_of(const json& scalar) {
  return std::bit_cast<double>(
      std::stoull(scalar.at("value_float64").get<std::string>(), nullptr, 16));
}

TEST_CASE("every scalar's record is TensorBoard's, byte for byte") {
  const json oracle = json::parse(read_file(RR_TEST_DATA "/report/tensorboard.json"));
  REQUIRE(oracle.at("scalars").size() == 49);
  for (const json& scalar : oracle.at("scalars")) {
    const std::string tag = scalar.at("tag");
    const double value = value_of(scalar);
    INFO(tag << " " << value);
    const std::string record = scalar_record(tag, value, scalar.at("step"), scalar.at("wall_time"));
    if (std::isnan(value)) {  // a NaN's payload is not part of the format
      CHECK(hex(record).size() == scalar.at("record").get<std::string>().size());
    } else {
      CHECK(hex(record) == scalar.at("record").get<std::string>());
    }
  }
}

TEST_CASE("the first record names the file version") {
  CHECK(hex(version_record(1700000000)) ==
        "1800000000000000a37f4b22"
        "0900000040fc54d9411a0d627261696e2e4576656e743a32"
        "eced8f9d");
}

// The one event file of a folder.
std::string event_file(const TempFolder& folder) {
  REQUIRE(folder.num_files() == 1);
  return std::filesystem::directory_iterator(folder.path())->path().string();
}

TEST_CASE("an event file is the version and the scalars in order, there after a flush") {
  const TempFolder folder;
  TensorBoard board(folder.path());
  CHECK_THAT(event_file(folder), Catch::Contains("/events.out.tfevents."));
  const std::string head = read_file(event_file(folder));
  CHECK(head.size() == version_record(1700000000).size());
  board.scalar("lm loss", 5.5, 1, 1700000001.5);
  board.scalar("grad-norm", 0.25, 1, 1700000001.5);
  board.flush();
  CHECK(read_file(event_file(folder)) == head + scalar_record("lm loss", 5.5, 1, 1700000001.5) +
                                             scalar_record("grad-norm", 0.25, 1, 1700000001.5));
}

TEST_CASE("scalars that were not flushed are written at the end") {
  const TempFolder folder;
  { TensorBoard(folder.path()).scalar("a", 1, 2, 3); }
  CHECK_THAT(read_file(event_file(folder)), Catch::EndsWith(scalar_record("a", 1, 2, 3)));
}

TEST_CASE("two writers of one folder do not share a file") {
  const TempFolder folder;
  const TensorBoard first(folder.path());
  const TensorBoard second(folder.path());
  CHECK(folder.num_files() == 2);
}

TEST_CASE("a folder that cannot be made is refused with its key") {
  CHECK_THROWS_WITH(TensorBoard("/proc/none"),
                    Catch::Contains("logger.tensorboard_dir") && Catch::Contains("/proc/none"));
}

TEST_CASE("a full disk fails the flush with the path") {
  const TempFolder folder;
  if (!rr::test::mount_small_disk(folder.path())) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  {
    TensorBoard board(folder.path());
    for (int i = 0; i < 5000; ++i) board.scalar("lm loss", 1, i, 1);
    CHECK_THROWS_WITH(board.flush(), Catch::Contains("events.out") && Catch::Contains("No space"));
  }
  umount(folder.path().c_str());
}

}  // namespace
