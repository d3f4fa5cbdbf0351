// Reader of Megatron's .bin/.idx pair (megatron.md 9.2). The .idx is not believed: every field is
// checked against the sizes of both files before the first token is read.
#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "base/mapped_file.h"
#include "base/text.h"
#include "data/corpus.h"
#include "data/indexed_format.h"

namespace rr::data {

namespace {

const char kRebuild[] = "Build the pair again.";

[[noreturn]] void refuse(const std::string& path, std::string what, std::string remedy = kRebuild) {
  throw UsageError({Severity::error, path, "", std::move(what), std::move(remedy)});
}

void check_both_exist(const std::string& prefix) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (const char* ending : {".bin", ".idx"}) {
    if (!std::filesystem::exists(prefix + ending, ignored)) missing.push_back(prefix + ending);
  }
  if (missing.empty()) return;
  std::string remedy =
      "Check the prefix, or make the pair: run_recipe data build --input FILE "
      "--output PREFIX.";
  const std::string ending = prefix.size() > 4 ? prefix.substr(prefix.size() - 4) : "";
  if (ending == ".bin" || ending == ".idx") {
    remedy = fmt::format("Leave the ending out: {}.", prefix.substr(0, prefix.size() - 4));
  }
  refuse(prefix,
         fmt::format("One or both of the .idx and .bin files cannot be found at the path prefix "
                     "{}: there is no {}.",
                     prefix, join(missing, " and no ")),
         std::move(remedy));
}

// Where each table of an .idx starts.
struct Tables {
  std::int64_t sequences = 0, document_entries = 0;
  std::int64_t lengths() const { return kHeaderBytes; }
  std::int64_t offsets() const { return lengths() + 4 * sequences; }
  std::int64_t documents() const { return offsets() + 8 * sequences; }
  std::int64_t end() const { return documents() + 8 * document_entries; }
};

std::int64_t checked_item_bytes(const MappedFile& index) {
  const auto code = index.load<std::uint8_t>(kTypeAt);
  switch (code) {
    case 1:
    case 2:
      return 1;
    case 3:
    case 8:
      return 2;
    case 4:
      return 4;
    case 5:
      return 8;
    case 6:
    case 7:
      refuse(index.path(), fmt::format("dtype code {} is {}; token ids are integers.", code,
                                       code == 6 ? "float64" : "float32"));
  }
  refuse(index.path(),
         fmt::format("dtype code {} is unknown; known are 1 (uint8), 2 (int8), 3 (int16), 4 "
                     "(int32), 5 (int64) and 8 (uint16).",
                     code));
}

Tables checked_header(const MappedFile& index) {
  const std::string& path = index.path();
  if (index.size() < kHeaderBytes) {
    refuse(path, fmt::format("bad header, cannot read: {}: the file has {} bytes, the header alone "
                             "has {}.",
                             path, index.size(), kHeaderBytes));
  }
  if (std::memcmp(index.data(), kMagic, sizeof kMagic) != 0) {
    refuse(path, fmt::format("bad header, cannot read: {}: it does not start with MMIDIDX.", path));
  }
  const auto version = index.load<std::uint64_t>(kVersionAt);
  if (version != 1) {
    refuse(path,
           fmt::format("bad version, cannot read: {}: version {}, known is 1.", path, version));
  }
  // Counts are compared with the file size before they are multiplied, so nothing overflows.
  const auto sequences = index.load<std::uint64_t>(kSequenceCountAt);
  const auto entries = index.load<std::uint64_t>(kDocumentCountAt);
  const auto rest = static_cast<std::uint64_t>(index.size() - kHeaderBytes);
  if (sequences == 0) refuse(path, "sequence count is 0: the corpus is empty.");
  if (sequences > rest / 12 || entries > rest / 8) {
    refuse(path, fmt::format("sequence count {} and document count {} do not fit into the file's "
                             "{} bytes: it is truncated or damaged.",
                             sequences, entries, index.size()));
  }
  const Tables tables{static_cast<std::int64_t>(sequences), static_cast<std::int64_t>(entries)};
  if (index.size() == tables.end() + tables.sequences) {
    refuse(path, "it holds a table of modes: multimodal data is not supported.",
           "Use a text corpus.");
  }
  if (index.size() != tables.end()) {
    refuse(path, fmt::format("the file has {} bytes; sequence count {} and document count {} need "
                             "{}: it is {}.",
                             index.size(), sequences, entries, tables.end(),
                             index.size() < tables.end() ? "truncated" : "damaged"));
  }
  return tables;
}

std::vector<std::int32_t> checked_lengths(const MappedFile& index, const Tables& tables) {
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(tables.sequences));
  std::memcpy(lengths.data(), index.data() + tables.lengths(), lengths.size() * 4);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0) {
      refuse(index.path(), fmt::format("length of sequence {} is {}.", i, lengths[i]));
    }
  }
  return lengths;
}

void check_bin_size(const MappedFile& bin, const MappedFile& index,
                    const std::vector<std::int32_t>& lengths, std::int64_t item_bytes) {
  std::int64_t tokens = 0;
  for (const std::int32_t length : lengths) tokens += length;
  if (tokens == 0) refuse(index.path(), "lengths are all 0: the corpus is empty.");
  const std::int64_t needed = tokens * item_bytes;
  if (bin.size() == needed) return;
  refuse(bin.path(), fmt::format("the file has {} bytes; the lengths in {} add up to {} tokens, {} "
                                 "bytes: {}.",
                                 bin.size(), index.path(), tokens, needed,
                                 bin.size() < needed ? "it is truncated, or the .idx is another's"
                                                     : "the .idx is damaged, or another's"));
}

void check_offsets(const MappedFile& bin, const MappedFile& index, const Tables& tables,
                   const std::vector<std::int32_t>& lengths, std::int64_t item_bytes) {
  for (std::int64_t i = 0; i < tables.sequences; ++i) {
    const auto offset = index.load<std::int64_t>(tables.offsets() + 8 * i);
    const std::int64_t bytes = lengths[static_cast<std::size_t>(i)] * item_bytes;
    if (offset < 0 || offset % item_bytes != 0 || offset > bin.size() - bytes) {
      refuse(index.path(),
             fmt::format("byte offset of sequence {} is {}; with its {} bytes it does not lie on a "
                         "token inside the {} bytes of {}.",
                         i, offset, bytes, bin.size(), bin.path()));
    }
  }
}

void check_documents(const MappedFile& index, const Tables& tables) {
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < tables.document_entries; ++i) {
    const auto boundary = index.load<std::int64_t>(tables.documents() + 8 * i);
    if (i == 0 ? boundary != 0 : boundary < previous) {
      refuse(index.path(),
             fmt::format("document index {} is {}; {}.", i, boundary,
                         i == 0 ? "it must be 0" : fmt::format("the one before is {}", previous)));
    }
    previous = boundary;
  }
  if (previous != tables.sequences) {
    refuse(index.path(),
           fmt::format("last document index is {}; it must be the sequence count, {}.", previous,
                       tables.sequences));
  }
}

template <class T>
void widen(const std::byte* from, std::int64_t count, std::int64_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T token;
    std::memcpy(&token, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    out[i] = token;
  }
}

class IndexedCorpus final : public Corpus {
 public:
  explicit IndexedCorpus(const std::string& prefix)
      : index_(prefix + ".idx"), bin_(prefix + ".bin") {
    const Tables tables = checked_header(index_);
    type_ = index_.load<std::uint8_t>(kTypeAt);
    item_bytes_ = checked_item_bytes(index_);
    lengths_ = checked_lengths(index_, tables);
    check_bin_size(bin_, index_, lengths_, item_bytes_);
    check_offsets(bin_, index_, tables, lengths_, item_bytes_);
    check_documents(index_, tables);
    offsets_at_ = tables.offsets();
  }

  const std::vector<std::int32_t>& lengths() const override { return lengths_; }
  std::string file() const override { return bin_.path(); }

  std::int64_t position(std::int64_t sequence, std::int64_t offset) const override {
    return index_.load<std::int64_t>(offsets_at_ + 8 * sequence) / item_bytes_ + offset;
  }

  void read(std::int64_t sequence, std::int64_t offset, std::int64_t count,
            std::int64_t* out) const override {
    const std::byte* from = bin_.data() + position(sequence, offset) * item_bytes_;
    switch (type_) {
      case 1:
        return widen<std::uint8_t>(from, count, out);
      case 2:
        return widen<std::int8_t>(from, count, out);
      case 3:
        return widen<std::int16_t>(from, count, out);
      case 4:
        return widen<std::int32_t>(from, count, out);
      case 5:
        return widen<std::int64_t>(from, count, out);
      case 8:
        return widen<std::uint16_t>(from, count, out);
    }
  }

 private:
  MappedFile index_, bin_;
  std::uint8_t type_ = 0;
  std::int64_t item_bytes_ = 0, offsets_at_ = 0;
  std::vector<std::int32_t> lengths_;
};

}  // namespace

std::unique_ptr<Corpus> open_indexed(const std::string& prefix) {
  check_both_exist(prefix);
  return std::make_unique<IndexedCorpus>(prefix);
}

}  // namespace rr::data
