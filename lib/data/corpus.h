// A corpus: sequences of tokens that can be read anywhere, whatever they are stored in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/base.h"

namespace rr::data {

// Immutable, so any thread may read.
class Corpus {
 public:
  virtual ~Corpus() = default;

  // Tokens of each sequence.
  virtual const std::vector<std::int32_t>& lengths() const = 0;
  // Writes tokens [offset, offset + count) of a sequence, as they are stored; the range exists.
  virtual void read(std::int64_t sequence, std::int64_t offset, std::int64_t count,
                    std::int64_t* out) const = 0;
  // The file that a message about a token names, and the token's position in it.
  virtual std::string file() const = 0;
  virtual std::int64_t position(std::int64_t sequence, std::int64_t offset) const = 0;
};

// PREFIX.bin and PREFIX.idx, memory-mapped. Everything the .idx says is checked here against both
// files; throws UsageError naming the file and the field.
std::unique_ptr<Corpus> open_indexed(const std::string& prefix);

// Megatron's mock corpus: 100,000 sequences of 1 to 4,095 tokens that count 1, 2, 3, ... modulo
// `vocab` and end with `end_of_document`.
std::unique_ptr<Corpus> make_mock(std::int64_t vocab, std::int64_t end_of_document);

// Writes PREFIX.bin and PREFIX.idx under temporary names; they appear with finish(), or are removed
// by the destructor. Throws Error when the disk does not take a byte, UsageError when the place
// cannot be written to.
class IndexedWriter {
 public:
  IndexedWriter(const std::string& prefix, DType type);
  ~IndexedWriter();
  IndexedWriter(const IndexedWriter&) = delete;
  IndexedWriter& operator=(const IndexedWriter&) = delete;

  // Adds tokens, already in the file's type, to the current sequence.
  void append(const void* tokens, std::int64_t count);
  // A sequence holds at most 2^31 - 1 tokens (its length is an int32 in the file).
  void end_sequence();
  void end_document();
  void finish();

  std::int64_t num_documents() const;
  std::int64_t num_tokens() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rr::data
