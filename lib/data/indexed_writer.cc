// Writer of Megatron's .bin/.idx pair. Both files grow under a temporary name and are renamed when
// they are complete, so that nobody reads a half-written corpus and a failure keeps the old one.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "data/corpus.h"
#include "data/indexed_format.h"

namespace rr::data {

namespace {

std::uint8_t code_of(DType type) {
  switch (type) {
    case DType::u8:
      return 1;
    case DType::i8:
      return 2;
    case DType::i16:
      return 3;
    case DType::i32:
      return 4;
    case DType::i64:
      return 5;
    case DType::u16:
      return 8;
    case DType::f32:
    case DType::bf16:
    case DType::f64:
    case DType::f16:
    case DType::boolean:
      break;
  }
  fail_check("an integer type", __FILE__, __LINE__, fmt::format("{} tokens", name_of(type)));
}

// A file under construction: removed unless kept.
class Draft {
 public:
  explicit Draft(std::string path)
      : path_(std::move(path)), file_(std::fopen(draft().c_str(), "wb")) {
    if (file_ == nullptr) {
      throw UsageError({Severity::error, path_, "",
                        fmt::format("cannot be written: {}.", std::strerror(errno)),
                        "Choose an output that can be written to."});
    }
  }
  ~Draft() {
    if (file_ != nullptr) std::fclose(file_);
    if (!kept_) std::remove(draft().c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void write(const void* data, std::size_t bytes) {
    if (bytes == 0) return;  // `data` may be null then
    if (std::fwrite(data, 1, bytes, file_) != bytes) fail();
  }
  template <class T>
  void write_value(T value) {
    write(&value, sizeof value);
  }
  void close() {
    std::FILE* file = std::exchange(file_, nullptr);
    if (std::fclose(file) != 0) fail();
  }
  void keep() {
    if (std::rename(draft().c_str(), path_.c_str()) != 0) fail();
    kept_ = true;
  }

 private:
  std::string draft() const { return path_ + ".part"; }
  [[noreturn]] void fail() const {
    throw Error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

  std::string path_;
  std::FILE* file_;
  bool kept_ = false;
};

}  // namespace

struct IndexedWriter::State {
  State(const std::string& prefix, DType token_type)
      : type(token_type), bin(prefix + ".bin"), index(prefix + ".idx") {}

  DType type;
  Draft bin, index;
  std::int64_t tokens = 0, sequence_tokens = 0;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> documents = {0};
};

IndexedWriter::IndexedWriter(const std::string& prefix, DType type) {
  const auto folder = std::filesystem::path(prefix).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  if (failure) {
    throw UsageError({Severity::error, prefix, "",
                      fmt::format("its folder cannot be made: {}.", failure.message()),
                      "Choose an output that can be written to."});
  }
  state_ = std::make_unique<State>(prefix, type);
}

IndexedWriter::~IndexedWriter() = default;

void IndexedWriter::append(const void* tokens, std::int64_t count) {
  state_->bin.write(tokens, static_cast<std::size_t>(count * size_of(state_->type)));
  state_->tokens += count;
  state_->sequence_tokens += count;
}

void IndexedWriter::end_sequence() {
  const std::int64_t length = std::exchange(state_->sequence_tokens, 0);
  RR_CHECK(length <= std::numeric_limits<std::int32_t>::max(), fmt::format("{} tokens", length));
  state_->lengths.push_back(static_cast<std::int32_t>(length));
}

void IndexedWriter::end_document() {
  state_->documents.push_back(static_cast<std::int64_t>(state_->lengths.size()));
}

void IndexedWriter::finish() {
  Draft& index = state_->index;
  index.write(kMagic, sizeof kMagic);
  index.write_value<std::uint64_t>(1);
  index.write_value(code_of(state_->type));
  index.write_value<std::uint64_t>(state_->lengths.size());
  index.write_value<std::uint64_t>(state_->documents.size());
  index.write(state_->lengths.data(), state_->lengths.size() * 4);
  std::int64_t offset = 0;
  for (const std::int32_t length : state_->lengths) {
    index.write_value(offset);
    offset += length * size_of(state_->type);
  }
  index.write(state_->documents.data(), state_->documents.size() * 8);
  state_->bin.close();
  index.close();
  state_->bin.keep();
  index.keep();
}

std::int64_t IndexedWriter::num_documents() const {
  return static_cast<std::int64_t>(state_->documents.size()) - 1;
}

std::int64_t IndexedWriter::num_tokens() const { return state_->tokens; }

}  // namespace rr::data
