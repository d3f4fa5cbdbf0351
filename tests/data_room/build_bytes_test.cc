// Text to tokens, byte by byte.
#include "data/corpus.h"
#include "data/data.h"
#include "golden.h"

namespace {

using namespace rr::data;
using Catch::Contains;

std::vector<std::int64_t> sequence(const Corpus& corpus, std::int64_t index) {
  std::vector<std::int64_t> tokens(
      static_cast<std::size_t>(corpus.lengths()[static_cast<std::size_t>(index)]));
  corpus.read(index, 0, static_cast<std::int64_t>(tokens.size()), tokens.data());
  return tokens;
}

TEST_CASE("each file becomes one document of its bytes and an end") {
  const golden::Folder folder;
  golden::write_file(folder / "one.txt", std::string("A\0\xff\n", 4));
  golden::write_file(folder / "two.txt", "z");
  const auto report =
      build_bytes({folder / "one.txt", folder / "two.txt"}, folder / "deep/er/text");
  CHECK(report.documents == 2);
  CHECK(report.tokens == 7);
  CHECK(report.bin == folder / "deep/er/text.bin");
  const auto corpus = open_indexed(folder / "deep/er/text");
  REQUIRE(corpus->lengths().size() == 2);
  CHECK(sequence(*corpus, 0) == std::vector<std::int64_t>{'A', 0, 255, '\n', kByteEndOfDocument});
  CHECK(sequence(*corpus, 1) == std::vector<std::int64_t>{'z', kByteEndOfDocument});
}

TEST_CASE("a file longer than the copy buffer keeps every byte") {
  const golden::Folder folder;
  std::string text;
  for (int i = 0; i < 100'003; ++i) text += static_cast<char>(i * 7 % 251);
  golden::write_file(folder / "long.txt", text);
  CHECK(build_bytes({folder / "long.txt"}, folder / "c").tokens == 100'004);
  const auto tokens = sequence(*open_indexed(folder / "c"), 0);
  for (std::size_t i = 0; i < text.size(); ++i) {
    REQUIRE(tokens[i] == static_cast<unsigned char>(text[i]));
  }
  CHECK(tokens.back() == kByteEndOfDocument);
}

TEST_CASE("missing, empty and irregular inputs are all named, and nothing is written") {
  const golden::Folder folder;
  golden::write_file(folder / "empty.txt", "");
  golden::write_file(folder / "good.txt", "text");
  std::filesystem::create_directory(folder / "sub");
  CHECK_THAT(golden::refusal([&] {
               build_bytes(
                   {folder / "none.txt", folder / "good.txt", folder / "empty.txt", folder / "sub"},
                   folder / "c");
             }),
             Contains("none.txt: cannot be read: no such file") &&
                 Contains("empty.txt: the file is empty") && Contains("sub: cannot be read") &&
                 !Contains("good.txt"));
  CHECK_FALSE(std::filesystem::exists(folder / "c.bin"));
  CHECK_THAT(golden::refusal([&] { build_bytes({}, folder / "c"); }), Contains("no file is given"));
}

TEST_CASE("an input is never overwritten by its output") {
  const golden::Folder folder;
  golden::write_file(folder / "c.bin", "text");
  CHECK_THAT(golden::refusal([&] { build_bytes({folder / "c.bin"}, folder / "c"); }),
             Contains("it is the output"));
  CHECK(golden::read_file(folder / "c.bin") == "text");
}

TEST_CASE("a full disk is a failure that leaves nothing half-written and keeps the old corpus") {
  const golden::Folder folder;
  golden::write_file(folder / "text.txt", "text");
  build_bytes({folder / "text.txt"}, folder / "c");
  const std::string before = golden::read_file(folder / "c.bin");
  std::filesystem::create_symlink("/dev/full", folder / "c.idx.part");
  CHECK_THROWS_WITH(build_bytes({folder / "text.txt"}, folder / "c"),
                    Contains("cannot write") && Contains("No space left on device"));
  CHECK_FALSE(std::filesystem::exists(folder / "c.bin.part"));
  CHECK_FALSE(std::filesystem::is_symlink(folder / "c.idx.part"));
  CHECK(golden::read_file(folder / "c.bin") == before);
  CHECK(open_indexed(folder / "c")->lengths().size() == 1);
}

TEST_CASE("an output that cannot be written to is the user's problem") {
  const golden::Folder folder;
  golden::write_file(folder / "text.txt", "text");
  CHECK_THAT(golden::refusal([&] { build_bytes({folder / "text.txt"}, folder / "text.txt/c"); }),
             Contains("text.txt/c") && Contains("folder cannot be made"));
  std::filesystem::create_directory(folder / "c.bin.part");
  CHECK_THAT(golden::refusal([&] { build_bytes({folder / "text.txt"}, folder / "c"); }),
             Contains("c.bin") && Contains("cannot be written"));
}

}  // namespace
