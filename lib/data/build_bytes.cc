// `run_recipe data build`: text to .bin/.idx, one token per byte.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/text.h"
#include "data/corpus.h"
#include "data/data.h"

namespace rr::data {

namespace {

namespace fs = std::filesystem;

// A document's length, its end included, is an int32 in the .idx.
constexpr std::uintmax_t kMostBytes = std::numeric_limits<std::int32_t>::max() - 1;

class InputFile {
 public:
  explicit InputFile(const std::string& path) : file_(std::fopen(path.c_str(), "rb")) {}
  ~InputFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::FILE* get() const { return file_; }

 private:
  std::FILE* file_;
};

void check_input(const std::string& path, const std::vector<std::string>& outputs,
                 std::vector<Problem>& problems) {
  const auto add = [&](std::string what, std::string remedy) {
    problems.push_back({Severity::error, path, "", std::move(what), std::move(remedy)});
  };
  std::error_code failure;
  const auto status = fs::status(path, failure);
  if (!fs::exists(status)) return add("cannot be read: no such file.", "Check the path.");
  if (!fs::is_regular_file(status)) {
    return add("cannot be read: it is not a regular file.", "Name its files one by one.");
  }
  if (InputFile(path).get() == nullptr) {
    return add(fmt::format("cannot be read: {}.", std::strerror(errno)), "Check its permissions.");
  }
  const std::uintmax_t bytes = fs::file_size(path, failure);
  if (bytes == 0) add("the file is empty.", "Leave it out.");
  if (bytes > kMostBytes) {
    add(fmt::format("{} bytes are more than a document can hold, {}.", bytes, kMostBytes),
        "Split the file.");
  }
  for (const auto& output : outputs) {
    if (fs::equivalent(path, output, failure)) {
      add(fmt::format("it is the output {}.", output), "Choose another output.");
    }
  }
}

void append_document(const std::string& path, IndexedWriter& writer) {
  const InputFile file(path);
  std::array<unsigned char, 1 << 15> bytes;
  std::array<std::uint16_t, 1 << 15> tokens;
  std::size_t count = 0;
  while (file.get() != nullptr &&
         (count = std::fread(bytes.data(), 1, bytes.size(), file.get())) > 0) {
    std::copy(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count), tokens.begin());
    writer.append(tokens.data(), static_cast<std::int64_t>(count));
  }
  if (file.get() == nullptr || std::ferror(file.get()) != 0) {
    throw Error(fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  const auto end = static_cast<std::uint16_t>(kByteEndOfDocument);
  writer.append(&end, 1);
  writer.end_sequence();
  writer.end_document();
}

}  // namespace

BuildReport build_bytes(const std::vector<std::string>& inputs, const std::string& output_prefix) {
  BuildReport report;
  report.bin = output_prefix + ".bin";
  report.idx = output_prefix + ".idx";
  std::vector<Problem> problems;
  if (inputs.empty()) {
    problems.push_back({Severity::error, "--input", "", "no file is given.", "Name at least one."});
  }
  for (const auto& input : inputs) check_input(input, {report.bin, report.idx}, problems);
  if (!problems.empty()) throw UsageError(std::move(problems));

  IndexedWriter writer(output_prefix, DType::u16);
  for (const auto& input : inputs) append_document(input, writer);
  writer.finish();
  report.documents = writer.num_documents();
  report.tokens = writer.num_tokens();
  return report;
}

}  // namespace rr::data
