// Token data: Megatron's .bin/.idx files and mock data, in Megatron's sample order.
//
// The sample order is a pure function of the files, the seed and the number of consumed samples; a
// data-parallel rank reads its own samples only. Formats and order: megatron.md 9.2, 9.3.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/base.h"
#include "plan/plan.h"

namespace rr::data {

enum class Split : std::uint8_t { train = 0, valid = 1, test = 2 };
const char* name_of(Split split);

// B sequences of S tokens, row-major [B, S].
struct Batch {
  std::int64_t num_sequences = 0, seq_length = 0;
  std::vector<std::int64_t> tokens, labels, positions;
  std::vector<float> loss_mask;         // 1: counts, 0: padding or masked
  std::vector<std::int64_t> document_starts;  // only with reset_attention_mask: [B, S] start of the
                                              // token's document within the sequence; else empty
};

// One split, ready to read. Any rank and thread may read any sample.
class Samples {
 public:
  virtual ~Samples() = default;
  // Samples that exist; an index past it is refused by read().
  virtual std::int64_t size() const = 0;
  // Appends sample `index` to `batch`. Throws UsageError for a token id outside the vocabulary,
  // naming file, position and id.
  virtual void read(std::int64_t index, Batch& batch) const = 0;
};

// Opens a split of the plan's data. nullptr for a split nobody asked samples of. Throws UsageError:
// missing, truncated or inconsistent files (file and field named), a corpus shorter than one
// sequence, a split without tokens.
std::unique_ptr<Samples> open(const plan::DataPlan& plan, Split split);

// Which samples a data-parallel rank reads: micro-batch `micro_batch` of the step that starts after
// `consumed` samples. Micro-batch m of all ranks together is B * data_size consecutive samples.
Batch read_batch(const Samples& samples, std::int64_t consumed, int micro_batch,
                 std::int64_t micro_batch_size, int data_rank, int data_size);

// ---- files ----------------------------------------------------------------------------------

// `run_recipe data build`: each input file is one document, its bytes are token ids 0..255,
// followed by 256 (end of document); uint16 .bin/.idx. Returns what was written. Throws UsageError
// for unreadable or empty input; a half-written output is removed.
inline constexpr std::int64_t kByteVocab = 257;
inline constexpr std::int64_t kByteEndOfDocument = 256;
struct BuildReport {
  std::int64_t documents = 0, tokens = 0;
  std::string bin, idx;
};
BuildReport build_bytes(const std::vector<std::string>& inputs, const std::string& output_prefix);

}  // namespace rr::data
