// Token data: Megatron's .bin/.idx files and mock data, in Megatron's sample order.
//
// The sample order is a pure function of the files, the seed and the number of consumed samples; a
// data-parallel rank reads its own samples only. Formats and order: megatron.md 9.2, 9.3.
#pragma once

#include <cstdint>
#include <memory>
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
  std::vector<float> loss_mask;               // 1: counts, 0: padding or masked
  std::vector<std::int64_t> document_starts;  // only with reset_attention_mask: [B, S] start of the
                                              // token's document within the sequence; else empty
};

// One split, ready to read. Any rank and thread may read any sample.
class Samples {
 public:
  virtual ~Samples() = default;
  // Samples that exist: at least as many as a split with weights, or with one corpus, was asked
  // for, and often more. An index past it is refused by read().
  virtual std::int64_t size() const = 0;
  // Appends sample `index` to `batch`. Throws UsageError for a token id outside the vocabulary,
  // naming file, position and id.
  virtual void read(std::int64_t index, Batch& batch) const = 0;
};

// Opens a split of the plan's data; the others are not touched. nullptr for a split nobody asked
// samples of, and for a test split whose share is 0. No file is written: every rank that reads data
// builds the index in memory (about a second for 1e9 tokens). Throws UsageError: missing, truncated
// or inconsistent files (file and field named), a split without tokens, a split whose corpora
// together are shorter than one sequence, weights that do not fit, corpora blended by size that are
// too small for the training asked for (they are never repeated).
std::unique_ptr<Samples> open(const plan::DataPlan& plan, Split split);

// What follows the last sample. Training is refused, on all data-parallel ranks alike: decided on
// the samples that they read together, also where a rank's own would still exist. Evaluation wraps
// to the first sample, so that any number of evaluations can be run.
enum class AtEnd : std::uint8_t { refuse, wrap };

// Which samples a data-parallel rank reads: micro-batch `micro_batch` of the step that starts after
// `consumed` samples. Micro-batch m of all ranks together is B * data_size consecutive samples. A
// pure function of its arguments: a resumed run reads on where `consumed` says. Throws UsageError
// at the end of training data.
Batch read_batch(const Samples& samples, std::int64_t consumed, int micro_batch,
                 std::int64_t micro_batch_size, int data_rank, int data_size,
                 AtEnd at_end = AtEnd::refuse);

// ---- files ----------------------------------------------------------------------------------

// `run_recipe data build`: each input file is one document, its bytes are token ids 0..255,
// followed by 256 (end of document); uint16 .bin/.idx. Makes the output's folder. Returns what was
// written; documents have the order of `inputs`. Throws UsageError for unreadable or empty input
// (every such file named), Error when the disk does not take the output; either way nothing
// half-written stays, and an older output is kept.
inline constexpr std::int64_t kByteVocab = 257;
inline constexpr std::int64_t kByteEndOfDocument = 256;
struct BuildReport {
  std::int64_t documents = 0, tokens = 0;
  std::string bin, idx;
};
BuildReport build_bytes(const std::vector<std::string>& inputs, const std::string& output_prefix);

}  // namespace rr::data
