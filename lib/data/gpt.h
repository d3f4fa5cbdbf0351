// Batches from a corpus: tokens, labels, masks and positions of sample i (megatron.md 9.3).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/corpus.h"
#include "data/data.h"
#include "data/order.h"

namespace rr::data {

// One corpus in its sample order.
class GptSamples final : public Samples {
 public:
  GptSamples(const plan::DataPlan& plan, std::unique_ptr<Corpus> corpus, Order order);

  std::int64_t size() const override;
  void read(std::int64_t index, Batch& batch) const override;

  const Order& order() const { return order_; }

 private:
  std::vector<std::int64_t> gather(std::int64_t sample) const;
  void check_vocab(const std::int64_t* tokens, std::int64_t count, std::int64_t sequence,
                   std::int64_t offset) const;

  const std::unique_ptr<Corpus> corpus_;
  const Order order_;
  const std::int64_t seq_length_, extra_tokens_, vocab_, end_of_document_;
  const bool reset_position_ids_, reset_attention_mask_, eod_mask_loss_;
};

class BlendedSamples final : public Samples {
 public:
  // Throws UsageError when the blend draws more samples of a part than the part has.
  BlendedSamples(std::vector<std::unique_ptr<GptSamples>> parts, Blend blend);

  std::int64_t size() const override;
  void read(std::int64_t index, Batch& batch) const override;

  const Blend& blend() const { return blend_; }
  const std::vector<std::unique_ptr<GptSamples>>& parts() const { return parts_; }

 private:
  std::vector<std::unique_ptr<GptSamples>> parts_;
  Blend blend_;
};

struct Built {
  std::unique_ptr<Samples> samples;
  std::int64_t tokens = 0;  // that the split holds, each corpus once
};

// open() without its refusals of data that the reference reads in ways nobody wants: a split that
// nobody asks samples of, and corpora shorter than one sequence. Asking for kOneEpoch samples gives
// what one pass over the tokens holds.
Built build_samples(const plan::DataPlan& plan, Split split);

}  // namespace rr::data
