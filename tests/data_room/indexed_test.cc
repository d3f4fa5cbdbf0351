// The .bin/.idx pair: what is written reads back, and a damaged file is named with its field.
#include <algorithm>
#include <limits>

#include "data/corpus.h"
#include "data/data.h"
#include "golden.h"

namespace {

using namespace rr::data;

// Two documents of two sequences each: 3, 0, 4 and 2 tokens.
void write_small(const std::string& prefix) {
  IndexedWriter writer(prefix, rr::DType::u16);
  const std::uint16_t tokens[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  writer.append(tokens, 3);
  writer.end_sequence();
  writer.end_sequence();
  writer.end_document();
  writer.append(tokens + 3, 4);
  writer.end_sequence();
  writer.append(tokens + 7, 2);
  writer.end_sequence();
  writer.end_document();
  writer.finish();
}

constexpr std::size_t kLengthsAt = 34, kOffsetsAt = 34 + 4 * 4, kDocumentsAt = 34 + 12 * 4;

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The message for the small pair after its .idx was changed by `damage`.
template <class Damage>
std::string with_index(const Damage& damage) {
  const golden::Folder folder;
  write_small(folder / "c");
  std::string bytes = golden::read_file(folder / "c.idx");
  damage(bytes);
  golden::write_file(folder / "c.idx", bytes);
  return golden::refusal([&] { open_indexed(folder / "c"); });
}

std::string all_tokens(const Corpus& corpus) {
  std::string text;
  for (std::size_t i = 0; i < corpus.lengths().size(); ++i) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(corpus.lengths()[i]));
    corpus.read(static_cast<std::int64_t>(i), 0, corpus.lengths()[i], tokens.data());
    for (const auto token : tokens) text += std::to_string(token) + " ";
    text += "| ";
  }
  return text;
}

TEST_CASE("a corpus reads back as it was written, empty sequences included") {
  const golden::Folder folder;
  write_small(folder / "c");
  const auto corpus = open_indexed(folder / "c");
  CHECK(all_tokens(*corpus) == "1 2 3 | | 4 5 6 7 | 8 9 | ");
  CHECK(corpus->position(2, 1) == 4);
  std::int64_t token = 0;
  corpus->read(2, 3, 1, &token);
  CHECK(token == 7);
}

TEST_CASE("the writer makes the reference's files byte for byte") {
  for (const std::string name : {"corpus_a", "corpus_b", "corpus_c"}) {
    const golden::Folder folder;
    const std::string bin = golden::read_file(golden::path(name + ".bin"));
    const std::string idx = golden::read_file(golden::path(name + ".idx"));
    const auto corpus = open_indexed(golden::path(name));
    const bool wide = name == "corpus_b";
    IndexedWriter writer(folder / "copy", wide ? rr::DType::i32 : rr::DType::u16);
    std::vector<std::int64_t> borders;
    golden::append_as<std::int64_t>(idx, 34 + 12 * corpus->lengths().size(), borders);
    std::size_t at = 0, document = 1;
    for (std::size_t i = 0; i < corpus->lengths().size(); ++i) {
      writer.append(bin.data() + at, corpus->lengths()[i]);
      at += static_cast<std::size_t>(corpus->lengths()[i]) * (wide ? 4 : 2);
      writer.end_sequence();
      for (; document < borders.size() && borders[document] == static_cast<std::int64_t>(i + 1);
           ++document) {
        writer.end_document();
      }
    }
    writer.finish();
    CHECK(golden::read_file(folder / "copy.bin") == bin);
    CHECK(golden::read_file(folder / "copy.idx") == idx);
  }
}

TEST_CASE("the reference's corpora have the tokens their description lists") {
  const auto all = golden::json("cases.json");
  for (const auto& [name, expected] : all["corpora"].items()) {
    const auto corpus = open_indexed(golden::path(name));
    CHECK(corpus->lengths().size() == expected["sequences"].get<std::size_t>());
    std::int64_t sequence = 0;
    for (const auto& tokens : expected["first_sequences"]) {
      std::vector<std::int64_t> read(tokens.size());
      corpus->read(sequence++, 0, static_cast<std::int64_t>(read.size()), read.data());
      CHECK(read == tokens.get<std::vector<std::int64_t>>());
    }
    std::int64_t pair[2];
    const auto& lengths = corpus->lengths();
    const auto longest = std::max_element(lengths.begin(), lengths.end()) - lengths.begin();
    corpus->read(longest, 1, 2, pair);
    CHECK(pair[0] == expected["get_last_offset1_len2"][0].get<std::int64_t>());
    CHECK(pair[1] == expected["get_last_offset1_len2"][1].get<std::int64_t>());
  }
}

template <class T>
void check_type(rr::DType type) {
  const golden::Folder folder;
  const T tokens[] = {0, 1, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
  IndexedWriter writer(folder / "c", type);
  writer.append(tokens, 4);
  writer.end_sequence();
  writer.end_document();
  writer.finish();
  std::vector<std::int64_t> read(4);
  open_indexed(folder / "c")->read(0, 0, 4, read.data());
  CHECK(read == std::vector<std::int64_t>{0, 1, std::numeric_limits<T>::max(),
                                          std::numeric_limits<T>::min()});
}

TEST_CASE("every integer type keeps its smallest and largest token") {
  check_type<std::uint8_t>(rr::DType::u8);
  check_type<std::int8_t>(rr::DType::i8);
  check_type<std::int16_t>(rr::DType::i16);
  check_type<std::uint16_t>(rr::DType::u16);
  check_type<std::int32_t>(rr::DType::i32);
  check_type<std::int64_t>(rr::DType::i64);
}

// ---- B136 -------------------------------------------------------------------------------------

TEST_CASE("B136: a bad magic, version or type is named with the file") {
  using Catch::Contains;
  CHECK_THAT(with_index([](std::string& idx) { idx[3] = 'x'; }),
             Contains("c.idx") && Contains("bad header, cannot read"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::uint64_t>(idx, 9, 2); }),
             Contains("c.idx") && Contains("bad version, cannot read") && Contains("version 2"));
  CHECK_THAT(with_index([](std::string& idx) { idx[17] = 9; }),
             Contains("c.idx") && Contains("dtype code 9 is unknown"));
  CHECK_THAT(with_index([](std::string& idx) { idx[17] = 7; }),
             Contains("dtype code 7 is float32"));
}

TEST_CASE("B136: a truncated or overlong .idx is refused with its sizes") {
  using Catch::Contains;
  CHECK_THAT(with_index([](std::string& idx) { idx.resize(33); }),
             Contains("bad header") && Contains("33 bytes"));
  CHECK_THAT(with_index([](std::string& idx) { idx.resize(0); }), Contains("0 bytes"));
  CHECK_THAT(with_index([](std::string& idx) { idx.resize(idx.size() - 1); }),
             Contains("105 bytes") && Contains("need 106") && Contains("truncated"));
  CHECK_THAT(with_index([](std::string& idx) { idx += "xx"; }),
             Contains("108 bytes") && Contains("damaged"));
  CHECK_THAT(with_index([](std::string& idx) { idx += "\1\1\1\1"; }), Contains("modes"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::uint64_t>(idx, 18, ~0ULL); }),
             Contains("sequence count 18446744073709551615"));
}

TEST_CASE("B136: wrong lengths, offsets and document tables are named with their place") {
  using Catch::Contains;
  CHECK_THAT(with_index([](std::string& idx) { put<std::int32_t>(idx, kLengthsAt + 8, -4); }),
             Contains("length of sequence 2 is -4"));
  CHECK_THAT(
      with_index([](std::string& idx) { put<std::int32_t>(idx, kLengthsAt, 4); }),
      Contains("c.bin") && Contains("18 bytes") && Contains("add up to 10 tokens, 20 bytes"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::int64_t>(idx, kOffsetsAt + 24, 16); }),
             Contains("byte offset of sequence 3 is 16"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::int64_t>(idx, kOffsetsAt, -2); }),
             Contains("byte offset of sequence 0 is -2"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::int64_t>(idx, kOffsetsAt, 1); }),
             Contains("byte offset of sequence 0 is 1"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::int64_t>(idx, kDocumentsAt + 16, 3); }),
             Contains("last document index is 3") && Contains("sequence count, 4"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::int64_t>(idx, kDocumentsAt + 8, 5); }),
             Contains("document index 2 is 4") && Contains("the one before is 5"));
  CHECK_THAT(with_index([](std::string& idx) { put<std::int64_t>(idx, kDocumentsAt, 1); }),
             Contains("document index 0 is 1"));
}

TEST_CASE("B136: a .bin one byte short or long is refused with its name and size") {
  using Catch::Contains;
  const golden::Folder folder;
  write_small(folder / "c");
  const std::string bytes = golden::read_file(folder / "c.bin");
  golden::write_file(folder / "c.bin", bytes.substr(0, 17));
  CHECK_THAT(
      golden::refusal([&] { open_indexed(folder / "c"); }),
      Contains("c.bin") && Contains("17 bytes") && Contains("18 bytes") && Contains("truncated"));
  golden::write_file(folder / "c.bin", bytes + "x");
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "c"); }),
             Contains("c.bin") && Contains("19 bytes"));
  golden::write_file(folder / "c.bin", "");
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "c"); }), Contains("0 bytes"));
}

TEST_CASE("B136: an empty corpus is refused, with and without sequences") {
  const golden::Folder folder;
  IndexedWriter(folder / "none", rr::DType::u16).finish();
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "none"); }),
             Catch::Contains("none.idx") && Catch::Contains("sequence count is 0"));
  IndexedWriter writer(folder / "hollow", rr::DType::u16);
  writer.end_sequence();
  writer.end_document();
  writer.finish();
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "hollow"); }),
             Catch::Contains("hollow.idx") && Catch::Contains("lengths are all 0"));
}

TEST_CASE("a missing file is named, and a prefix with an ending is corrected") {
  const golden::Folder folder;
  write_small(folder / "c");
  std::filesystem::remove(folder / "c.idx");
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "c"); }),
             Catch::Contains("cannot be found at the path prefix") &&
                 Catch::Contains("there is no " + (folder / "c.idx") + "."));
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "c.bin"); }),
             Catch::Contains("Leave the ending out: " + (folder / "c") + "."));
  std::filesystem::create_directory(folder / "c.idx");
  CHECK_THAT(golden::refusal([&] { open_indexed(folder / "c"); }),
             Catch::Contains("c.idx") && Catch::Contains("not a regular file"));
}

// ---- damage anywhere --------------------------------------------------------------------------

// Refused with a message, or every sample reads; anything else fails the test.
void open_and_read(const std::string& prefix, int& refused, int& read) {
  try {
    const auto samples = open(golden::plan_for(prefix, 3, 20, 1'000'000'000), Split::train);
    for (std::int64_t i = 0; i < samples->size(); ++i) {
      Batch batch;
      samples->read(i, batch);
    }
    ++read;
  } catch (const rr::UsageError&) {
    ++refused;
  }
}

TEST_CASE("an .idx flipped or cut anywhere is refused or reads within its files") {
  const golden::Folder folder;
  write_small(folder / "c");
  const std::string whole = golden::read_file(folder / "c.idx");
  int refused = 0, read = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x02, 0x04, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      golden::write_file(folder / "c.idx", damaged);
      open_and_read(folder / "c", refused, read);
    }
    golden::write_file(folder / "c.idx", whole.substr(0, at));
    open_and_read(folder / "c", refused, read);
  }
  CHECK(refused + read == static_cast<int>(whole.size()) * 6);
  CHECK(refused > 500);
  // Harmless: the inner document border, or another offset or type that still lies inside the .bin.
  CHECK(read > 0);
}

TEST_CASE("a golden .idx damaged at many places never reads outside its files") {
  const golden::Folder folder;
  const std::string whole = golden::read_file(golden::path("corpus_b.idx"));
  golden::write_file(folder / "b.bin", golden::read_file(golden::path("corpus_b.bin")));
  int refused = 0, read = 0;
  std::uint32_t random = 1;
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    for (int flips = 0; flips < 1 + i % 3; ++flips) {
      random = random * 1664525U + 1013904223U;
      damaged[(random >> 8) % damaged.size()] ^= static_cast<char>(1U << (random >> 29));
    }
    golden::write_file(folder / "b.idx", damaged);
    open_and_read(folder / "b", refused, read);
  }
  CHECK(refused + read == 400);
  CHECK(refused > 100);
}

}  // namespace
