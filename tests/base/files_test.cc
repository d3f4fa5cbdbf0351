// Mapped files, and new files that are complete under their name or not there.
#include "base/files.h"

#include <sys/mount.h>

#include <catch2/catch.hpp>

#include "base/base.h"
#include "base/mapped_file.h"
#include "base/temp_folder.h"

namespace {

using rr::MappedFile;
using rr::NewFile;
using rr::test::read_file;
using rr::test::TempFolder;
using rr::test::write_file;

TEST_CASE("a mapped file shows its bytes, at any alignment, and can be moved") {
  const TempFolder folder;
  write_file(folder.path("a"), std::string("x\1\0\0\0y", 6));
  MappedFile first(folder.path("a"));
  CHECK(first.size() == 6);
  CHECK(first.load<std::int32_t>(1) == 1);
  const MappedFile second = std::move(first);
  CHECK(second.load<char>(5) == 'y');
  CHECK(second.path() == folder.path("a"));
  write_file(folder.path("empty"), "");
  CHECK(MappedFile(folder.path("empty")).size() == 0);
}

TEST_CASE("what cannot be mapped is refused with its path and the reason") {
  const TempFolder folder;
  CHECK_THROWS_WITH(MappedFile(folder.path("none")),
                    Catch::Contains(folder.path("none")) && Catch::Contains("No such file"));
  CHECK_THROWS_WITH(MappedFile(folder.path()), Catch::Contains("it is not a regular file"));
  CHECK_THROWS_AS(MappedFile("/dev/null"), rr::UsageError);
}

TEST_CASE("a published file has its text and leaves no temporary") {
  const TempFolder folder;
  {
    NewFile file(folder.path("a.txt"));
    file.write("one ");
    file.write("two");
    CHECK_FALSE(std::filesystem::exists(folder.path("a.txt")));
    file.publish();
  }
  CHECK(read_file(folder.path("a.txt")) == "one two");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("a file that is not published leaves what was there") {
  const TempFolder folder;
  write_file(folder.path("a.txt"), "old");
  { NewFile(folder.path("a.txt")).write("new"); }
  CHECK(read_file(folder.path("a.txt")) == "old");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("a published file replaces the old one") {
  const TempFolder folder;
  write_file(folder.path("a.txt"), "old and longer");
  NewFile file(folder.path("a.txt"));
  file.write("new");
  file.publish();
  CHECK(read_file(folder.path("a.txt")) == "new");
}

TEST_CASE("a file that cannot be made or put in place is refused with its path") {
  const TempFolder folder;
  CHECK_THROWS_WITH(NewFile(folder.path("none/a.txt")),
                    Catch::Contains(folder.path("none/a.txt")) && Catch::Contains("No such file"));
  std::filesystem::create_directory(folder.path("taken"));
  NewFile file(folder.path("taken"));
  CHECK_THROWS_AS(file.publish(), rr::Error);
}

TEST_CASE("a full disk is an error with the path, and no file appears") {
  const TempFolder folder;
  if (!rr::test::mount_small_disk(folder.path())) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  {
    NewFile file(folder.path("big"));
    const std::string text(100'000, 'x');
    CHECK_THROWS_WITH(file.write(text),
                      Catch::Contains(folder.path("big")) && Catch::Contains("No space left"));
  }
  CHECK(folder.num_files() == 0);
  umount(folder.path().c_str());
}

}  // namespace
